"""EKFAC: KFAC's eigenvectors with eigenvalues measured in them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posterity.algebra import Basis, JointEigen, Matrix
from posterity.blocks import Block, Call
from posterity.curvature.base import Accumulator, Estimator, gradients, positions, rows
from posterity.curvature.diagonal import CACHED, FEW, Squares, summed_squares
from posterity.curvature.kfac import Averages
from posterity.curvature.workers import Workers


@dataclass(frozen=True)
class EKFAC(Estimator):
    """Two passes over the data: KFAC's factors, then Σ (Uᵀ G V)² in their eigenvectors U and V.

    In Frobenius norm never further from the Fisher information of the same labels than KFAC.
    """

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        return _Rotated(block, dtype) if block.layer.separable else Squares(block, dtype)


class _Rotated(Accumulator):
    phases = 2

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        super().__init__(block, dtype)
        self.averages: Averages | None = Averages(block, dtype)
        self.values = torch.zeros(self.layer.out, self.layer.inp, dtype=torch.float64)

    def see_input(self, a: Tensor) -> None:
        if self.averages is not None:
            self.averages.see_input(a)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        if self.averages is not None:
            self.averages.see_gradients(calls, last)
        elif positions(self.block, calls) < self.layer.out:
            # Fewer rows than a gradient has: turning the rows is cheaper than turning the gradient.
            a, s = rows(self.block, calls)
            u, v = self._bases(a)
            a, s = a @ v, s @ u
            if a.shape[1] <= FEW:
                self._add(summed_squares(a, s))
            else:
                step = max(1, CACHED // (self.layer.out * self.layer.inp))
                for ap, sp in zip(a.split(step), s.split(step), strict=True):
                    self._add((sp.mT @ ap).square_().sum(0))
        else:
            for g in gradients(self.block, calls):
                u, v = self._bases(g)
                self._add((u.T @ (g @ v)).square_().sum(0))

    def _bases(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return self.left.to(like), self.right.to(like)

    def _add(self, squares: Tensor) -> None:
        self.values = self.values.to(squares.device).add_(squares)

    def next_phase(self, workers: Workers) -> None:
        assert self.averages is not None
        left, right = self.averages.factors(workers)
        self.left, self.right = (torch.linalg.eigh(x).eigenvectors for x in (left, right))
        self.averages = None

    def result(self, workers: Workers) -> Matrix:
        # In float64 whatever the network: rounded eigenvectors would no longer be orthogonal.
        return JointEigen(Basis.orthogonal(self.left), Basis.orthogonal(self.right), workers.sum(self.values))
