"""A frame with values in one pass: eigenvectors from the first examples, the Fisher's own diagonal in them from all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from posterity.algebra import Basis, JointEigen, Kronecker, Matrix, in_one_frame
from posterity.blocks import Block, Call
from posterity.curvature.base import Accumulator, Estimator
from posterity.curvature.kfac import ValuesInFrame
from posterity.curvature.kfoc import KFOC
from posterity.curvature.unfactored import Squares
from posterity.data.batches import Workers

KEPT = 1 << 26
"""Bytes of inputs and gradients that a block keeps until its frame is found; a frame of fewer examples then has to do."""


@dataclass(frozen=True)
class OwnFrame(Estimator):
    """Eigenvectors U and V of another estimator's pair on the first examples, then Σ (Uᵀ G V)² over all of them.

    Any frame gives values whose trace is the Fisher's, and the frame only decides how much lies off the diagonal. So a part
    of the data is enough for it, and one pass over all for the values: cheaper than K-FOC's own pass, and half of EKFAC's
    two. With no more examples than `examples` and `OwnFrame(frame=KFAC())` it is EKFAC exactly.

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
        return _OwnFrameValues(block, dtype, self) if block.layer.separable else Squares(block, dtype)


class _OwnFrameValues(ValuesInFrame):
    def __init__(self, block: Block, dtype: torch.dtype, choice: OwnFrame) -> None:
        # In float64: eigenvectors of what float32 has rounded are no worse, but must be orthogonal.
        super().__init__(block, dtype, replace(choice.frame, labels=choice.labels).start(block, torch.float64))
        self.examples = choice.examples
        self.waiting: list[list[Call]] = []
        self.count, self.bytes = 0, 0

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        # A copy of the records, not of their tensors: the pass lets go of its own.
        own = [Call(c.a, c.s) for c in calls]
        super().see_gradients(calls, last)
        if self.finder is None:
            return
        self.waiting.append(own)
        self.bytes += sum(x.nbytes for c in own for x in (c.a, c.s) if x is not None)
        if last:
            self.count += len(own[0].s)  # type: ignore[arg-type]
            if self.count >= self.examples or self.bytes >= KEPT:
                self._settle()

    def _settle(self) -> None:
        """The frame is found: from here on its values are all that is summed."""
        assert self.finder is not None
        pair, self.finder = self.finder.result(Workers()), None
        assert isinstance(pair, Kronecker)
        self.left, self.right = (torch.linalg.eigh(x.double()).eigenvectors for x in (pair.left, pair.right))
        for calls in self.waiting:
            super().see_gradients(calls, True)
        self.waiting = []

    def state(self) -> dict[str, Any]:
        return super().state() | {"waiting": [[[call.a, call.s] for call in calls] for calls in self.waiting]}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.waiting = [[Call(a, s) for a, s in calls] for calls in state["waiting"]]

    def result(self, workers: Workers) -> Matrix:
        if self.finder is not None:
            self._settle()
        parts = zip(workers.gather(self.left), workers.gather(self.right), workers.gather(self.values), strict=True)
        found = [JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values) for left, right, values in parts]
        # Workers have frames of their own: one for all of them has the exact trace too.
        return found[0] if len(found) == 1 else in_one_frame(found)
