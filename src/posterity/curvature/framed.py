"""A frame with values in one pass: eigenvectors from the first examples, the Fisher's own diagonal in them from all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from posterity.algebra import Basis, JointEigen, Kronecker, Matrix, in_one_frame
from posterity.blocks import Block, Call
from posterity.blocks.base import plain_fields
from posterity.curvature.base import Accumulator, Estimator
from posterity.curvature.diagonal import Squares
from posterity.curvature.kfac import add_squares
from posterity.curvature.kfoc import KFOC
from posterity.data.batches import Workers

KEPT = 1 << 26
"""Bytes of inputs and gradients that a block keeps until its frame is found; a frame of fewer examples then has to do."""


@dataclass(frozen=True)
class Framed(Estimator):
    """Eigenvectors U and V of another estimator's pair on the first examples, then Σ (Uᵀ G V)² over all of them.

    Any frame gives values whose trace is the Fisher's, and the frame only decides how much lies off the diagonal. So a part
    of the data is enough for it, and one pass over all for the values: cheaper than K-FOC's own pass, and half of EKFAC's
    two. With no more examples than `examples` and `Framed(frame=KFAC())` it is EKFAC exactly.

    Args:
        labels: over which the Fisher information is taken.
        frame: `KFOC()` or `KFAC()`: whose eigenvectors.
        examples: how many examples make the frame, in whole batches.
    """

    frame: Estimator = KFOC()  # noqa: RUF009 (frozen)
    examples: int = 512

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise ValueError(f"a frame is made of at least 1 example, not {self.examples}")

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        return _Framed(block, dtype, self) if block.layer.separable else Squares(block, dtype)


class _Framed(Accumulator):
    def __init__(self, block: Block, dtype: torch.dtype, choice: Framed) -> None:
        super().__init__(block, dtype)
        self.examples = choice.examples
        # In float64: eigenvectors of what float32 has rounded are no worse, but must be orthogonal.
        self.finder: Accumulator | None = replace(choice.frame, labels=choice.labels).start(block, torch.float64)
        self.waiting: list[list[Call]] = []
        self.count, self.bytes = 0, 0
        self.values = torch.zeros(self.layer.out, self.layer.inp, dtype=torch.float64)
        self.left: Tensor | None = None
        self.right: Tensor | None = None

    def see_input(self, a: Tensor) -> None:
        if self.finder is not None:
            self.finder.see_input(a)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        if self.finder is None:
            self._add(calls)
            return
        # A copy of the records, not of their tensors: the pass lets go of its own.
        own = [Call(c.a, c.s) for c in calls]
        self.finder.see_gradients([Call(c.a, c.s) for c in calls], last)
        self.waiting.append(own)
        self.bytes += sum(x.nbytes for c in own for x in (c.a, c.s) if x is not None)
        if last:
            self.count += len(own[0].s)  # type: ignore[arg-type]
            if self.count >= self.examples or self.bytes >= KEPT:
                self._settle()

    def _settle(self) -> None:
        """The frame is found: from here on its values are all that is summed."""
        assert self.finder is not None
        pair = self.finder.result(Workers())
        assert isinstance(pair, Kronecker)
        self.left, self.right = (torch.linalg.eigh(x.double()).eigenvectors for x in (pair.left, pair.right))
        self.finder = None
        for calls in self.waiting:
            self._add(calls)
        self.waiting = []

    def _add(self, calls: list[Call]) -> None:
        assert self.left is not None
        assert self.right is not None
        self.values = add_squares(self.values, self.block, calls, self.left, self.right)

    def state(self) -> dict[str, Any]:
        finder = None if self.finder is None else self.finder.state()
        waiting = [[[call.a, call.s] for call in calls] for calls in self.waiting]
        return plain_fields(self) | {"finder": finder, "waiting": waiting}

    def restore(self, state: Mapping[str, Any]) -> None:
        finder, waiting = state["finder"], state["waiting"]
        super().restore({name: value for name, value in state.items() if name != "finder"})
        self.waiting = [[Call(a, s) for a, s in calls] for calls in waiting]
        if finder is None:
            self.finder = None
        else:
            assert self.finder is not None
            self.finder.restore(finder)

    def result(self, workers: Workers) -> Matrix:
        if self.finder is not None:
            self._settle()
        assert self.left is not None
        assert self.right is not None
        parts = zip(workers.gather(self.left), workers.gather(self.right), workers.gather(self.values), strict=True)
        found = [JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values) for left, right, values in parts]
        # Workers have frames of their own: one for all of them has the exact trace too.
        return found[0] if len(found) == 1 else in_one_frame(found)
