"""KFAC: the Fisher information of a layer as the product of two averages; EKFAC: its eigenvectors with measured values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from posterity.algebra import Basis, JointEigen, Kronecker, Matrix, eigenvectors, is_large
from posterity.blocks import Block, Call, Moment
from posterity.blocks.base import CACHED, FEW, gradients, positions, rows, summed_squares
from posterity.blocks.linear import RowMoment, sum_dtype
from posterity.curvature.base import Accumulator, Estimator
from posterity.curvature.unfactored import Squares
from posterity.data.batches import Workers


@dataclass(frozen=True)
class KFAC(Estimator):
    """L = Σ s sᵀ over the data, R = the average of a aᵀ (over data and positions).

    `sharing` says how positions (pixels, tokens) enter: "expand" treats them as independent, as KFAC for convolutions does;
    "reduce" first sums gradients and averages inputs over the positions of an example.
    Exact for a linear layer and one example.
    """

    sharing: Literal["expand", "reduce"] = "expand"

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        if not block.layer.separable:
            return Squares(block, dtype)
        return Averages(block, dtype) if self.sharing == "expand" else ExampleAverages(block, dtype)


class Averages(Accumulator):
    """Input moments are taken on the way forward, gradient moments on the way back: nothing is kept between."""

    needs_inputs = False

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        super().__init__(block, dtype)
        self.left = self.layer.output_moment()
        self.moments: dict[torch.Size, Moment] = {}

    def see_input(self, a: Tensor) -> None:
        shape = a.shape[1:]
        if shape not in self.moments:
            self.moments[shape] = self.layer.input_moment(a.shape)
        self.moments[shape].add(a)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        for call in calls:
            assert call.s is not None
            self.left.add(call.s)

    def state(self) -> dict[str, Any]:
        moments = [(list(shape), moment.state()) for shape, moment in self.moments.items()]
        return {"left": self.left.state(), "moments": moments}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.left.restore(state["left"])
        for shape, moment in state["moments"]:
            self.moments[torch.Size(shape)] = self._moment(shape)
            self.moments[torch.Size(shape)].restore(moment)

    def _moment(self, shape: Sequence[int]) -> Moment:
        return self.layer.input_moment(torch.Size((1, *shape)))

    def factors(self, workers: Workers) -> tuple[Tensor, Tensor]:
        out, inp = self.block.shape
        left = self.left.matrix() if self.left.rows else torch.zeros(out, out)
        seen = [moment.matrix() for moment in self.moments.values()]
        right = sum(seen[1:], seen[0]) if seen else torch.zeros(inp, inp)
        count = sum(moment.rows for moment in self.moments.values())
        # A worker without a batch, or with small bands of a large factor, joins in what the others have.
        left, right = (x.to(sum_dtype(len(x), self.dtype)) for x in (left, right))
        return workers.sum(left), workers.sum(right).div_(max(1.0, workers.total(count)))

    def result(self, workers: Workers) -> Matrix:
        left, right = self.factors(workers)
        return Kronecker.unchecked(left.to(self.dtype), right.to(self.dtype))


class ExampleAverages(Averages):
    """The same of each example's summed gradient rows and averaged input rows."""

    needs_inputs = True

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        super().__init__(block, dtype)
        self.left, self.right = RowMoment(bias=False), RowMoment(bias=False)

    def see_input(self, a: Tensor) -> None:
        if not self.right.rows:
            self.layer.input_moment(a.shape)  # refused by the layer where the factor would be too large

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        a, s = rows(self.block, calls)
        self.left.add(s.sum(1))
        if last:
            self.right.add(a.mean(1))
            self.moments = {a.shape[1:]: self.right}

    def _moment(self, shape: Sequence[int]) -> Moment:
        return self.right


def add_squares(values: Tensor, block: Block, calls: list[Call], left: Tensor, right: Tensor) -> Tensor:
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


class ValuesInFrame(Accumulator):
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
            self.values = add_squares(self.values, self.block, calls, self.left, self.right)

    def state(self) -> dict[str, Any]:
        return super().state() | {"finder": None if self.finder is None else self.finder.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        finder = self.finder
        super().restore(state)
        self.finder = None if state["finder"] is None else finder
        if self.finder is not None:
            self.finder.restore(state["finder"])


class _RotatedValues(ValuesInFrame):
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
