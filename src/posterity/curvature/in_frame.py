"""Values in eigenvectors that are there already, a prior's say: one pass, nothing is decomposed, and bases are shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from posterity.algebra import JointEigen, Matrix, eigenframe
from posterity.blocks import Block, Call
from posterity.curvature.base import AUTOMATIC, Accumulator, Estimator
from posterity.curvature.framed import OwnFrame
from posterity.curvature.kfac import KFAC, add_squares
from posterity.curvature.likelihoods import Labels
from posterity.data.batches import Workers
from posterity.data.provenance import Provenance

OWN = OwnFrame(frame=KFAC())
BY_HAND = "eigenvectors of curvature that were given by hand"


class _FrameSource(Protocol):
    """A Gaussian, as far as its eigenvectors and their past are concerned."""

    @property
    def precision(self) -> Mapping[str, Matrix]: ...

    @property
    def provenance(self) -> Provenance: ...


@dataclass(frozen=True)
class GivenFrame(Estimator):
    """Σ (Uᵀ G V)² over the data, with the eigenvectors U and V of matrices that are given.

    The trace is the Fisher's, whatever the frame; what lies off the diagonal in it is dropped. After the prior whose precision
    was given, the posterior is exact in that frame and nowhere wider than the prior, and it holds one number a weight: its bases
    are the prior's own tensors. For networks whose eigenvectors take longer than their training.

    Args:
        labels: over which the Fisher information is taken.
        frames: matrices by block. What has no product of orthogonal bases gives no frame.
        rest: the estimator of blocks without a frame.
        past: what the matrices have seen. No one can tell of matrices that are given by hand; `GivenFrame.of` takes those of a
            Gaussian with all it has seen.

    Example:
        >>> curvature = pt.estimate(model, data, pt.curvature.GivenFrame.of(prior))
        >>> posterior = pt.update(model, curvature, prior)
    """

    frames: Mapping[str, Matrix] = field(default_factory=dict, repr=False, hash=False)
    rest: Estimator = OWN
    past: Provenance = field(default_factory=lambda: Provenance.unknown(BY_HAND), repr=False, hash=False)

    @classmethod
    def of(cls, gaussian: _FrameSource, labels: Labels = AUTOMATIC, rest: Estimator = OWN) -> GivenFrame:
        """In the eigenvectors of a Gaussian's precision."""
        return cls(labels, gaussian.precision, rest, gaussian.provenance)

    @property
    def seen(self) -> Provenance:
        return self.past.joined(self.rest.seen)

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        frame = self._frame(block)
        return self.rest.start(block, dtype) if frame is None else _GivenFrameValues(block, dtype, frame)

    def memory(self, block: Block) -> int:
        return self.rest.memory(block) if self._frame(block) is None else 8 * block.layer.out * block.layer.inp

    def _frame(self, block: Block) -> JointEigen | None:
        given = self.frames.get(block.name)
        if given is None or given.shape != block.shape or not block.layer.separable:
            return None
        return eigenframe(given)


class _GivenFrameValues(Accumulator):
    def __init__(self, block: Block, dtype: torch.dtype, frame: JointEigen) -> None:
        super().__init__(block, dtype)
        self.frame = frame
        self.values = torch.zeros(block.shape, dtype=torch.float64)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        self.values = add_squares(self.values, self.block, calls, self.frame.left.matrix, self.frame.right.matrix)

    def result(self, workers: Workers) -> Matrix:
        values = workers.sum(self.values).to(self.frame.left.matrix.dtype)
        return JointEigen(self.frame.left, self.frame.right, values)
