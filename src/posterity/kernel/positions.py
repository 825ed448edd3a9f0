"""Gradients of a large block that meets an example at several positions, such as a convolution: written out in part only.

A hundred gradients of a 512 × 4608 convolution are a gigabyte for each output. Their sums over positions, s_t a_tᵀ, are a
hundredth of that, and a kernel needs no more than a few rows of the gradients at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.kernel.gradients import BlockGradients

PIECE = 1 << 20
"""Entries of gradients that are written out at a time: what stays in a processor's cache until it has been multiplied."""
AT_ONCE = 16
"""Examples whose pairs of positions are multiplied at a time."""


@dataclass(frozen=True, eq=False)
class Positions(BlockGradients):
    """A block whose gradients are Σ_t s_t a_tᵀ over t positions: kept as rows, in the precision of the block's frame."""

    a: Float[Tensor, "n t inp"]
    s: Float[Tensor, "n outputs t out"]

    def gram(self, other: Positions, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n outputs m outputs"]:
        """Σ_ij w_ij G_ij G'_ij over the entries of the gradients; without weights all are 1."""
        (n, c), m = self.s.shape[:2], len(other.a)
        total = self.a.new_zeros(n * c, m * c, dtype=torch.float64)
        for rows in self._pieces(other):
            one, two = (x._written(rows).flatten(2).flatten(0, 1) for x in (self, other))
            total += (one if weights is None else one * weights[rows].flatten().to(one)) @ two.mT
        return total.view(n, c, m, c)

    def shared_gram(self, other: Positions, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n m"]:
        """The mean over outputs of the gram between equal outputs."""
        (n, c, t, _), (m, u) = self.s.shape, other.a.shape[:2]
        if weights is None:
            inner = self.a.flatten(0, 1) @ other.a.flatten(0, 1).mT
            one, two = (x.s.transpose(1, 2).flatten(2).flatten(0, 1) for x in (self, other))
            return (inner * (one @ two.mT)).double().view(n, t, m, u).sum((1, 3)) / c
        total = self.a.new_zeros(n, m, dtype=torch.float64)
        for rows in self._pieces(other):
            one = self._written(rows)
            two = one if other is self else other._written(rows)
            total += (one * weights[rows].to(one)).flatten(1) @ two.flatten(1).mT
        return total / c

    def shared_norms(self, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, " n"]:
        """From products of pairs of positions: no gradient is formed."""
        c, t = self.s.shape[1:3]
        if weights is None:
            both = (self.a @ self.a.mT)[:, None] * (self.s @ self.s.mT)
            return both.double().sum((1, 2, 3)) / c
        first, second = torch.triu_indices(t, t, device=self.a.device)
        twice = torch.where(first == second, 1.0, 2.0).to(self.s)
        found = []
        for a, s in zip(self.a.split(AT_ONCE), self.s.split(AT_ONCE), strict=True):
            inner = (a[:, first] * a[:, second]) @ weights.mT.to(a)  # some pairs out
            outer = (s[:, :, first] * s[:, :, second]).sum(1) * twice[:, None]
            found.append((inner * outer).double().sum((1, 2)))
        return torch.cat(found) / c

    def norms(self, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n outputs outputs"]:
        total: Tensor | None = None
        for rows in self._pieces(self):
            one = self._written(rows)
            part = (one if weights is None else one * weights[rows].to(one)).flatten(2) @ one.flatten(2).mT
            total = part.double() if total is None else total + part
        assert total is not None
        return total

    def along(self, direction: Float[Tensor, "out inp"]) -> Float[Tensor, "n outputs"]:
        """<G, direction> for every output."""
        return torch.einsum("ncto,nto->nc", self.s, self.a @ direction.mT.to(self.a)).double()

    def combined(self, coefficients: Float[Tensor, "n outputs"]) -> Float[Tensor, "out inp"]:
        """Σ coefficient · G."""
        rows = torch.einsum("nc,ncto->nto", coefficients.to(self.s), self.s)
        return (rows.flatten(0, 1).mT @ self.a.flatten(0, 1)).double()

    def mixed(self, coefficients: Float[Tensor, " n"]) -> Float[Tensor, "outputs out inp"]:
        """Σ coefficient · G over examples, output by output."""
        a = (self.a * coefficients[:, None, None].to(self.a)).flatten(0, 1)
        return (self.s.permute(1, 3, 0, 2).flatten(2) @ a).double()

    def _pieces(self, other: Positions) -> Iterator[slice]:
        """Rows of the gradients, as many at a time as fit for all examples."""
        out, inp = self.s.shape[-1], self.a.shape[-1]
        step = max(1, PIECE // max(1, max(len(self.a), len(other.a)) * self.s.shape[1] * inp))
        for start in range(0, out, step):
            yield slice(start, start + step)

    def _written(self, rows: slice) -> Float[Tensor, "n outputs rows inp"]:
        """Some rows of all gradients: one product for all outputs of an example."""
        (n, c), some = self.s.shape[:2], self.s[..., rows]
        return (some.transpose(-1, -2).flatten(1, 2) @ self.a).view(n, c, -1, self.a.shape[-1])
