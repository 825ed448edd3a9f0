"""The Fisher information's own values in a frame of eigenvectors: KFAC's, those of the first examples, or given ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from posterity.algebra import Basis, JointEigen, Kronecker, Matrix, eigenframe, eigenvectors, in_one_frame, is_large
from posterity.blocks import Block, Call
from posterity.blocks.base import CACHED, FEW, gradients, positions, rows, summed_squares
from posterity.curvature.base import AUTOMATIC, Accumulator, Estimator
from posterity.curvature.entries import Squares
from posterity.curvature.kfac import KFAC, Averages
from posterity.curvature.kfoc import KFOC
from posterity.curvature.likelihoods import Labels
from posterity.data.batches import Workers
from posterity.data.provenance import Provenance

KEPT = 1 << 26
"""Bytes of inputs and gradients that a block keeps until its frame is found; a frame of fewer examples then has to do."""
BY_HAND = "eigenvectors of curvature that were given by hand"


def _add_squares(values: Tensor, block: Block, calls: list[Call], left: Tensor, right: Tensor) -> Tensor:
    """Values, and Σ (Uᵀ G V)² of a batch added to them: the diagonal of its Fisher information in a frame."""
    layer = block.layer

    def added(squares: Tensor) -> Tensor:
        return values.to(squares.device).add_(squares)

    if positions(block, calls) < layer.out:
        # Fewer rows than a gradient has: turning the rows is cheaper than turning the gradient.
        a, s = rows(block, calls)
        a, s = a @ right.to(a), s @ left.to(s)
        if a.shape[1] <= FEW:
            return added(summed_squares(a, s))
        step = max(1, CACHED // (layer.out * layer.inp))
        for ap, sp in zip(a.split(step), s.split(step), strict=True):
            values = added((sp.mT @ ap).square_().sum(0))
    else:
        for g in gradients(block, calls):
            values = added((left.to(g).T @ (g @ right.to(g))).square_().sum(0))
    return values


@dataclass(frozen=True)
class EKFAC(Estimator):
    """Two passes over the data: KFAC's factors, then Σ (Uᵀ G V)² in their eigenvectors U and V.

    In Frobenius norm never further from the Fisher information of the same labels than KFAC.
    """

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        return _RotatedValues(block, dtype, Averages(block, dtype)) if block.layer.separable else Squares(block, dtype)


class _ValuesInFrame(Accumulator):
    """Σ (Uᵀ G V)² in the eigenvectors of the pair that a `finder` has summed before; it is let go of then."""

    left: Tensor
    right: Tensor

    def __init__(self, block: Block, dtype: torch.dtype, finder: Accumulator) -> None:
        super().__init__(block, dtype)
        self.finder: Accumulator | None = finder
        self.values = torch.zeros(self.layer.out, self.layer.inp, dtype=torch.float64)

    def see_input(self, a: Tensor) -> None:
        if self.finder is not None:
            self.finder.see_input(a)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        if self.finder is not None:
            self.finder.see_gradients(calls, last)
        else:
            self.values = _add_squares(self.values, self.block, calls, self.left, self.right)

    def state(self) -> dict[str, Any]:
        return super().state() | {"finder": None if self.finder is None else self.finder.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        finder = self.finder
        super().restore(state)
        self.finder = None if state["finder"] is None else finder
        if self.finder is not None:
            self.finder.restore(state["finder"])


class _RotatedValues(_ValuesInFrame):
    phases = 2

    def next_phase(self, workers: Workers) -> None:
        averages, self.finder = self.finder, None
        assert isinstance(averages, Averages)
        seen = [averages.left.rows, sum(moment.rows for moment in averages.moments.values())]
        factors = averages.factors(workers)
        single = is_large(*self.block.shape) and self.dtype == torch.float32
        self.left, self.right = (
            eigenvectors(x, single=single, rank=int(workers.total(rows)))[1]
            for x, rows in zip(factors, seen, strict=True)
        )

    def result(self, workers: Workers) -> Matrix:
        # In float64 whatever the network, since rounded eigenvectors are less orthogonal; large blocks as they were computed.
        values = workers.sum(self.values).to(self.left.dtype)
        return JointEigen(Basis.orthogonal(self.left), Basis.orthogonal(self.right), values)


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


class _OwnFrameValues(_ValuesInFrame):
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


OWN = OwnFrame(frame=KFAC())


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
        """The estimator in the eigenvectors of a Gaussian's precision."""
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
        self.values = _add_squares(self.values, self.block, calls, self.frame.left.matrix, self.frame.right.matrix)

    def result(self, workers: Workers) -> Matrix:
        values = workers.sum(self.values).to(self.frame.left.matrix.dtype)
        return JointEigen(self.frame.left, self.frame.right, values)
