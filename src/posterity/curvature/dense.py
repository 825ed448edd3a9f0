"""The Fisher information of a block, in full: the oracle of the tests, and fine for small blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posterity.algebra import DenseMatrix, Matrix
from posterity.blocks import Block, Call
from posterity.blocks.base import gradients
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
