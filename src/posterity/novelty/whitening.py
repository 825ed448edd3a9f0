"""Rows turned so that known inputs have the same spread in every direction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LEAST_SHRINKAGE = 1e-3
"""Keeps directions without any spread from becoming infinitely long."""
SPANNED = 1e-12
"""Directions with a smaller share of the largest eigenvalue count as not spanned."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """x ↦ S^(−½)(x − mean), with S the covariance of known rows, shrunk towards a multiple of the identity.

    Ledoit and Wolf (2004) settle the shrinkage. Rows are given in the eigenbasis of what n rows span, with the length of what
    lies outside as one more number: distances to the known rows are exact, at n instead of d numbers a row.
    """

    mean: Float[Tensor, "d"]
    basis: Float[Tensor, "d rank"]
    scales: Float[Tensor, "rank"]
    outside: float

    @classmethod
    def of(cls, rows: Float[Tensor, "n d"]) -> Whitening:
        """The whitening of these rows. Costs O(n d min(n, d))."""
        n, d = rows.shape
        mean = rows.mean(0)
        centred = rows - mean
        wide = n < d
        spread, turned = torch.linalg.eigh((centred @ centred.T if wide else centred.T @ centred) / n)
        kept = spread > SPANNED * spread[-1].clamp_min(torch.finfo(rows.dtype).tiny)
        spread, turned = spread[kept], turned[:, kept]
        level = float(spread.sum()) / d
        squares = float(spread.square().sum())
        noise = (float(centred.square().sum(1).square().mean()) - squares) / n
        excess = squares - level**2 * d
        shrinkage = min(max(noise / excess if excess > 0 else 1.0, LEAST_SHRINKAGE), 1.0)
        basis = centred.T @ turned * (n * spread).rsqrt() if wide else turned
        floor = shrinkage * level
        return cls(mean, basis, ((1 - shrinkage) * spread + floor).rsqrt(), floor**-0.5 if floor > 0 else 0.0)

    def float(self) -> Whitening:
        """The whitening in single precision."""
        return Whitening(self.mean.float(), self.basis.float(), self.scales.float(), self.outside)

    def __call__(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m _"]:
        centred = rows - self.mean
        turned = centred @ self.basis
        rest = (centred.square().sum(1) - turned.square().sum(1)).clamp_min(0).sqrt() * self.outside
        return torch.cat((turned * self.scales, rest[:, None]), 1)
