"""The Fisher information of a block entry by entry: in full, the oracle of the tests, or its diagonal alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posterity.algebra import DenseMatrix, DiagonalMatrix, Matrix
from posterity.blocks import Block, Call
from posterity.blocks.base import CACHED, FEW, gradients, positions, rows, summed_squares, tensors
from posterity.curvature.base import Accumulator, Estimator
from posterity.data.batches import Workers
from posterity.errors import TooLarge


@dataclass(frozen=True)
class Dense(Estimator):
    """Σ vec(G) vec(G)ᵀ for blocks of at most `limit` parameters. O(N · parameters²)."""

    limit: int = 8192

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        size = block.layer.out * block.layer.inp
        if size > self.limit:
            raise TooLarge(
                f'block "{block.name}" has {size} parameters, its dense curvature {size}² entries (limit {self.limit}): '
                "use KFOC() or KFAC(), or leave the block out with blocks=..."
            )
        return _Sum(block, dtype)


class _Sum(Accumulator):
    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        super().__init__(block, dtype)
        size = self.layer.out * self.layer.inp
        self.total = torch.zeros(size, size, dtype=torch.float64)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        for g in gradients(self.block, calls):
            flat = g.flatten(1)
            self.total = self.total.to(flat.device).add_(flat.T @ flat)

    def result(self, workers: Workers) -> Matrix:
        return DenseMatrix(workers.sum(self.total).to(self.dtype), self.block.shape)


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
