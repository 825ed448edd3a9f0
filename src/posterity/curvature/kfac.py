"""KFAC: the Fisher information of a layer as the product of two averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from posterity.algebra import Kronecker, Matrix
from posterity.blocks import Block, Call, Moment
from posterity.blocks.base import rows
from posterity.blocks.linear import RowMoment, sum_dtype
from posterity.curvature.base import Accumulator, Estimator
from posterity.curvature.entries import Squares
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
    """Averages of moments, from each example's summed gradient rows and averaged input rows."""

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
