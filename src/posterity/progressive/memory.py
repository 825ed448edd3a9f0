"""What earlier columns hand on for examples that come again every epoch: kept, not computed anew."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from posterity.blocks.capture import _version

Given = tuple[Tensor, int]
"""An input, and how often it had been changed in place when its layer read it."""

Inputs = dict[str, list[Given]]
"""What a column's lateral layers were given, call by call."""

POOL = 8
"""Draws of earlier columns that are kept and taken in turn. Fewer than half of them are not worth it."""
AT_ONCE = 250


class Memory:
    """For every example, what the columns before this one hand on: at their weights, and at each draw of a small pool.

    A column is trained for many epochs, and earlier columns do not change: with the pool they run a few times for each example
    instead of once an epoch. `front(x)` is what all columns are given of inputs x, `earlier(number, x)` what the earlier ones
    hand on at that draw (None: at their weights).
    """

    def __init__(
        self, x: Tensor, front: Callable[[Tensor], Tensor], earlier: Callable[[int | None, Tensor], list[Inputs]]
    ) -> None:
        self.x, self.front, self.earlier = x, front, earlier
        self.pool = 0
        self.inputs: Tensor | None = None
        self.kept: dict[int | None, list[dict[str, list[Tensor]]]] = {}

    def fits(self, room: int, drawn: bool) -> bool:
        """Whether there is room for the pool, which is then set as large as it can be."""
        few = [self.front(self.x[:n]) for n in (1, 2)]
        one, two = ([x, *_tensors(self.earlier(None, x))] for x in few)
        if not all(t.ndim and len(t) == n for n, made in ((1, one), (2, two)) for t in made):
            return False  # examples do not lie along the first axis
        front, bank = (len(self.x) * sum(t.nbytes for t in part) for part in (one[:1], one[1:]))
        self.pool = min(POOL, (room - front - bank) // max(1, bank)) if drawn else 0
        return self.pool >= POOL // 2 if drawn else front + bank <= room

    def recall(self, which: Tensor, number: int | None) -> tuple[Tensor, list[Inputs]]:
        """The columns' input for these examples, and what earlier columns hand on, at a draw of the pool if one is named."""
        if self.inputs is None:
            self.inputs = torch.cat([self.front(part) for part in self.x.split(AT_ONCE)])
        draw = None if number is None else number % self.pool
        if draw not in self.kept:
            self.kept[draw] = self._all(self.inputs, draw)
        which = which.to(self.inputs.device)
        seen = [
            {path: [_given(call[which]) for call in calls] for path, calls in column.items()}
            for column in self.kept[draw]
        ]
        return self.inputs[which], seen

    def _all(self, inputs: Tensor, draw: int | None) -> list[dict[str, list[Tensor]]]:
        parts = [self.earlier(draw, part) for part in inputs.split(AT_ONCE)]
        return [
            {
                path: [torch.cat([part[column][path][call][0] for part in parts]) for call in range(len(calls))]
                for path, calls in first.items()
            }
            for column, first in enumerate(parts[0])
        ]


def _given(x: Tensor) -> Given:
    return x, _version(x)


def _tensors(seen: list[Inputs]) -> list[Tensor]:
    return [a for inputs in seen for calls in inputs.values() for a, _ in calls]
