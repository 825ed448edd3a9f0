"""What earlier columns hand on for examples that come again every epoch: kept, not computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from posterity.blocks.base import version_of
from posterity.errors import ChangedInput

Given = tuple[Tensor, int]
"""An input, and how often it had been changed in place when its layer read it."""

Inputs = dict[str, list[Given]]
"""What a column's lateral layers were given, call by call."""

POOL = 8
"""Draws of earlier columns that are kept and taken in turn, if there is room. Fewer than half of them are not worth it."""
AT_ONCE = 250


class Memory:
    """For every example, what the columns before this one hand on: at their weights, and at each draw of a small pool.

    A column is trained for many epochs, and earlier columns do not change: with the pool they run a few times for each example
    instead of once an epoch. `front(x)` is what all columns are given of inputs x, `earlier(number, x)` what the earlier ones
    hand on at that draw (None: at their weights).
    """

    def __init__(
        self,
        parts: Sequence[Tensor],
        front: Callable[[Tensor], Any],
        earlier: Callable[[int | None, Any], list[Inputs]],
    ) -> None:
        self.parts, self.front, self.earlier = parts, front, earlier
        self.pool = 0
        self.inputs: Tensor | None = None
        self.kept: dict[int | None, list[dict[str, list[Tensor]]]] = {}

    def fits(self, memory_limit: int, drawn: bool) -> bool:
        """Whether all examples are alike and there is room for the pool, which is then set as large as it can be."""
        first, *others = self.parts
        if len(first) < 3 or any(x.shape[1:] != first.shape[1:] or x.dtype != first.dtype for x in others):
            return False
        made = {n: self._of(first[:n]) for n in (2, 3)}
        if not all(isinstance(t, Tensor) and t.ndim and len(t) == n for n, found in made.items() for t in found):
            return False  # not tensors, or examples do not lie along their first axis
        count = sum(map(len, self.parts))
        front, bank = (count * sum(t.nbytes for t in part) // 2 for part in (made[2][:1], made[2][1:]))
        self.pool = min(POOL, (memory_limit - front - bank) // max(1, bank)) if drawn else 0
        return self.pool >= POOL // 2 if drawn else front + bank <= memory_limit

    def recall(self, which: Tensor, number: int | None) -> tuple[Tensor, list[Inputs]]:
        """The columns' input for these examples, and what earlier columns hand on, at a draw of the pool if one is named."""
        if self.inputs is None:
            self.inputs = torch.cat([self.front(some) for part in self.parts for some in part.split(AT_ONCE)])
        draw = None if number is None else number % self.pool
        if draw not in self.kept:
            self.kept[draw] = self._all(self.inputs, draw)
        which = which.to(self.inputs.device)
        seen = [
            {path: [_given(call[which]) for call in calls] for path, calls in column.items()}
            for column in self.kept[draw]
        ]
        return self.inputs[which], seen

    def _of(self, x: Tensor) -> list[Any]:
        """All that is kept of some examples at one draw."""
        front = self.front(x)
        seen = enumerate(self.earlier(None, front))
        return [front, *(unchanged(a, path, i) for i, inputs in seen for path, calls in inputs.items() for a in calls)]

    def _all(self, inputs: Tensor, draw: int | None) -> list[dict[str, list[Tensor]]]:
        parts = [self.earlier(draw, part) for part in inputs.split(AT_ONCE)]
        return [
            {
                path: [
                    torch.cat([unchanged(part[column][path][call], path, column) for part in parts])
                    for call in range(len(calls))
                ]
                for path, calls in first.items()
            }
            for column, first in enumerate(parts[0])
        ]


def unchanged(given: Given, path: str, column: int) -> Tensor:
    """What a lateral layer was given, if it still is."""
    x, version = given
    if version_of(x) != version:
        raise ChangedInput(
            f'the input of "{path}" in column {column} was changed in place after the layer had read it (as by '
            "x += layer(x)): write x = x + layer(x), or leave it out of laterals=..."
        )
    return x


def _given(x: Tensor) -> Given:
    return x, version_of(x)
