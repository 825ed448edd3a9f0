"""The diagonal of the Fisher information."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posterity.algebra import DiagonalMatrix, Matrix
from posterity.blocks import Block, Call
from posterity.curvature.base import Accumulator, Estimator, gradients, positions, rows
from posterity.curvature.workers import Workers


@dataclass(frozen=True)
class Diagonal(Estimator):
    """Σ G² per parameter. A layer with one position an example (linear) never forms its gradients."""

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        return Squares(block, dtype)


class Squares(Accumulator):
    """Running sums of squared gradients; also what every estimator keeps for elementwise layers."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        super().__init__(block, dtype)
        self.total = torch.zeros(self.layer.out, self.layer.inp, dtype=torch.float64)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        if self.layer.separable and positions(self.block, calls) == 1:
            a, s = rows(self.block, calls)
            self._add(s.squeeze(1).square().T @ a.squeeze(1).square())
        else:
            for g in gradients(self.block, calls):
                self._add(g.square_().sum(0))

    def _add(self, squares: torch.Tensor) -> None:
        self.total = self.total.to(squares.device).add_(squares)

    def result(self, workers: Workers) -> Matrix:
        return DiagonalMatrix(workers.sum(self.total).to(self.dtype))
