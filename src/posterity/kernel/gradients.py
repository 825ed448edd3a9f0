"""Gradients of a block at every example and output, as rows or written out, and the kernels they make.

For layers with one position an example a gradient is s aᵀ. Kernels over many examples are products of matrices that fit into a
processor's cache, and those of examples with themselves are computed once for each pair. Gradients of large blocks that meet an
example at several positions, such as convolutions, are written out in part only: a hundred of a 512 × 4608 convolution are a
gigabyte for each output, the rows s_t and a_t that they are sums of are a hundredth of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

PIECE = 1 << 18
"""Entries of a temporary (2 MB in float64): what stays in a processor's cache until it has been multiplied."""
STRIPS, NARROW = 8, 8
"""Into how many strips a kernel of examples with themselves is cut, and the fewest examples of a strip."""
FEW = 8
"""New inputs up to which the metric of a kernel is multiplied into them, and not into all training examples."""


class BlockGradients(ABC):
    """The gradients of a block at every example and output, in tensors with the examples in front."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it is made of; outputs are the second dimension of the last."""
        return tuple(getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]

    def some(self, examples: slice) -> Self:
        """The gradients of some examples."""
        return type(self)(*(x[examples] for x in self.tensors))

    def joined(self, *others: Self) -> Self:
        """With those of further examples behind."""
        return type(self)(*map(torch.cat, zip(*(x.tensors for x in (self, *others)), strict=True))) if others else self

    @abstractmethod
    def norms(self, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n outputs outputs"]:
        """The blocks of `gram` with itself that belong to one example each."""

    def shared_norms(self, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, " n"]:
        """The diagonal of `shared_gram` with itself."""
        return self.norms(weights).diagonal(dim1=-2, dim2=-1).mean(-1)


@dataclass(frozen=True, eq=False)
class Rows(BlockGradients):
    """A block whose gradients are s aᵀ (one position an example): never multiplied out."""

    a: Float[Tensor, "n inp"]
    s: Float[Tensor, "n outputs out"]

    def gram(self, other: Rows, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n outputs m outputs"]:
        """Σ_ij w_ij G_ij G'_ij over the entries of the gradients; without weights all are 1."""
        if other is self:
            return _mirrored(self.s, lambda here, on: self.some(here).gram(self.some(on), weights))
        if weights is None:
            inner = self.a @ other.a.mT
            return torch.einsum("nci,mdi->ncmd", self.s, other.s).mul_(inner[:, None, :, None])
        (n, c, out), (m, d, _) = self.s.shape, other.s.shape
        weights = weights.to(self.a)
        if m <= FEW:
            # The metric goes to the side with fewer examples: one product, and no temporary of n matrices.
            inner = (self.a @ (other.a[:, None] * weights).flatten(0, 1).mT).view(n, m, out)
            scaled = other.s * inner[:, :, None]  # n m d out
            return (self.s @ scaled.flatten(1, 2).mT).view(n, c, m, d)
        total = self.s.new_empty(n, c, m, d)
        for new in _pieces(m, d * out):
            some, columns = other.s[new], other.a[new]
            for old in _pieces(n, max(some.numel(), weights.numel())):
                # For every row of the block's matrix the inputs meet in a metric of their own.
                inner = columns @ (self.a[old, None] * weights).mT  # old new out
                scaled = (some * inner[:, :, None]).flatten(1, 2)
                total[old, :, new] = (self.s[old] @ scaled.mT).unflatten(-1, (-1, d))
        return total

    def shared_gram(self, other: Rows, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n m"]:
        """The mean over outputs of the gram between equal outputs."""
        c, out = self.s.shape[1:]
        if weights is None:
            return (self.a @ other.a.mT) * (self.s.flatten(1) @ other.s.flatten(1).mT) / c
        if len(other.a) <= FEW:
            inner = (self.a @ (other.a[:, None] * weights.to(self.a)).flatten(0, 1).mT).view(len(self.a), -1, out)
            return (inner * torch.einsum("nci,mci->nmi", self.s, other.s)).sum(-1) / c
        total = self.a.new_zeros(len(self.a), len(other.a))
        for i in range(out):
            total += ((self.a * weights[i].to(self.a)) @ other.a.mT) * (self.s[:, :, i] @ other.s[:, :, i].mT)
        return total / c

    def norms(self, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n outputs outputs"]:
        if weights is None:
            return (self.s @ self.s.mT) * self.a.square().sum(-1)[:, None, None]
        return (self.s * (self.a.square() @ weights.mT.to(self.a))[:, None, :]) @ self.s.mT

    def along(self, direction: Float[Tensor, "out inp"]) -> Float[Tensor, "n outputs"]:
        """<G, direction> for every output."""
        return torch.einsum("nci,ni->nc", self.s, self.a @ direction.mT)

    def combined(self, coefficients: Float[Tensor, "n outputs"]) -> Float[Tensor, "out inp"]:
        """Σ coefficient · G."""
        return torch.einsum("nc,nci->ni", coefficients, self.s).mT @ self.a

    def mixed(self, coefficients: Float[Tensor, " n"]) -> Float[Tensor, "outputs out inp"]:
        """Σ coefficient · G over examples, output by output."""
        return (self.s * coefficients[:, None, None]).flatten(1).mT.matmul(self.a).unflatten(0, self.s.shape[1:])


@dataclass(frozen=True, eq=False)
class Gradients(BlockGradients):
    """A block whose gradients are written out, one matrix for every example and output."""

    g: Float[Tensor, "n outputs out inp"]

    def gram(self, other: Gradients, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n outputs m outputs"]:
        if other is self:
            return _mirrored(self.g, lambda here, on: self.some(here).gram(self.some(on), weights))
        first, second = _weighted(self.g.flatten(2).flatten(0, 1), other.g.flatten(2).flatten(0, 1), weights)
        return (first @ second.mT).view(*self.g.shape[:2], *other.g.shape[:2])

    def shared_gram(self, other: Gradients, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n m"]:
        first, second = _weighted(self.g.flatten(2), other.g.flatten(2), weights)
        return first.flatten(1) @ second.flatten(1).mT / self.g.shape[1]

    def norms(self, weights: Float[Tensor, "out inp"] | None) -> Float[Tensor, "n outputs outputs"]:
        flat = self.g.flatten(2)
        if weights is None:
            return flat @ flat.mT
        scale = weights.flatten().to(flat)
        return torch.cat([flat[some] @ (flat[some] * scale).mT for some in _pieces(len(flat), flat[:1].numel())])

    def along(self, direction: Float[Tensor, "out inp"]) -> Float[Tensor, "n outputs"]:
        return self.g.flatten(2) @ direction.flatten()

    def combined(self, coefficients: Float[Tensor, "n outputs"]) -> Float[Tensor, "out inp"]:
        return torch.einsum("nc,ncij->ij", coefficients, self.g)

    def mixed(self, coefficients: Float[Tensor, " n"]) -> Float[Tensor, "outputs out inp"]:
        return (coefficients @ self.g.flatten(1)).view(self.g.shape[1:])


def _weighted(first: Tensor, second: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both, the one with fewer rows times the weights."""
    if weights is None:
        return first, second
    scale = weights.flatten().to(first)
    return (first, second * scale) if len(second) < len(first) else (first * scale, second)


def _mirrored(
    like: Tensor, kernel: Callable[[slice, slice], Float[Tensor, "n c m d"]]
) -> Float[Tensor, "n outputs n outputs"]:
    """The kernel of examples with themselves: a strip of them meets itself and all behind it, the rest is mirrored."""
    n, c = like.shape[:2]
    total = like.new_empty(n, c, n, c)
    step = max(NARROW, -(-n // STRIPS))
    for start in range(0, n, step):
        here, on = slice(start, start + step), slice(start, None)
        total[here, :, on] = piece = kernel(here, on)
        total[on, :, here] = piece.permute(2, 3, 0, 1)
    return total


def _pieces(n: int, size: int) -> Iterator[slice]:
    """Slices of n examples of that size each, as many at a time as there is room for."""
    step = max(1, PIECE // max(1, size))
    for start in range(0, n, step):
        yield slice(start, start + step)


WRITTEN = 1 << 20
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
        step = max(1, WRITTEN // max(1, max(len(self.a), len(other.a)) * self.s.shape[1] * inp))
        for start in range(0, out, step):
            yield slice(start, start + step)

    def _written(self, rows: slice) -> Float[Tensor, "n outputs rows inp"]:
        """Some rows of all gradients: one product for all outputs of an example."""
        (n, c), some = self.s.shape[:2], self.s[..., rows]
        return (some.transpose(-1, -2).flatten(1, 2) @ self.a).view(n, c, -1, self.a.shape[-1])
