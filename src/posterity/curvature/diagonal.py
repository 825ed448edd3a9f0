"""The diagonal of the Fisher information."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posterity.algebra import DiagonalMatrix, Matrix
from posterity.blocks import Block, Call
from posterity.blocks.base import CACHED, FEW, gradients, positions, rows, summed_squares, tensors
from posterity.curvature.base import Accumulator, Estimator
from posterity.data.batches import Workers


@dataclass(frozen=True)
class Diagonal(Estimator):
    """Σ G² per parameter. Layers with few positions an example (linear ones have one) never form gradients."""

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        return Squares(block, dtype)

    def memory(self, block: Block) -> int:
        return 8 * block.layer.out * block.layer.inp


class Squares(Accumulator):
    """Running sums of squared gradients; also what every estimator keeps for elementwise layers."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        super().__init__(block, dtype)
        self.total = torch.zeros(self.layer.out, self.layer.inp, dtype=torch.float64)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        if (squares := self.layer.squares([tensors(call) for call in calls])) is not None:
            self._add(squares)
        elif self.layer.separable and positions(self.block, calls) <= FEW:
            self._add(summed_squares(*rows(self.block, calls)))
        else:
            # Small pieces: gradients that are squared and summed while they are still in the cache.
            for g in gradients(self.block, calls, max(1, CACHED // (self.layer.out * self.layer.inp))):
                self._add(g.square_().sum(0))

    def _add(self, squares: torch.Tensor) -> None:
        self.total = self.total.to(squares.device).add_(squares)

    def result(self, workers: Workers) -> Matrix:
        return DiagonalMatrix(workers.sum(self.total).to(self.dtype))
