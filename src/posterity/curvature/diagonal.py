"""The diagonal of the Fisher information."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import DiagonalMatrix, Matrix
from posterity.blocks import Block, Call
from posterity.curvature.base import Accumulator, Estimator, gradients, positions, rows, tensors
from posterity.curvature.workers import Workers

FEW = 8
"""Up to this many positions an example, products of pairs of rows are cheaper than gradients written out."""

CACHED = 1 << 20
"""Entries (4 MB in float32) that a processor's cache holds."""


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


def summed_squares(a: Float[Tensor, "n t inp"], s: Float[Tensor, "n t out"]) -> Float[Tensor, "out inp"]:
    """Σ_n G_n² with G_n = Σ_t s_t a_tᵀ, as one product: the square of a sum is a sum over pairs of positions."""
    t = a.shape[1]
    first, second = torch.triu_indices(t, t, device=a.device)
    twice = torch.where(first == second, 1.0, 2.0).to(s.dtype)
    gradient_pairs = s[:, first] * s[:, second] * twice[:, None]
    return gradient_pairs.flatten(0, 1).T @ (a[:, first] * a[:, second]).flatten(0, 1)
