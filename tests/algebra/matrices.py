"""One matrix of every structure, definite unless asked otherwise: the contract tests run over them all."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

from posterity.algebra import (
    Basis,
    DenseMatrix,
    DiagonalMatrix,
    FlooredMatrix,
    JointEigen,
    Kronecker,
    KroneckerSum,
    Matrix,
    RotatedMatrix,
    ScaledIdentity,
)


def definite(n: int, seed: int, batch: tuple[int, ...] = (), scale: float = 1.0) -> Tensor:
    """A well-conditioned positive definite matrix (eigenvalues of order one, times scale)."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(*batch, n, n + 2, generator=generator, dtype=torch.float64)
    return scale * (a @ a.mT / (n + 2) + 0.1 * torch.eye(n, dtype=torch.float64))


def semidefinite(n: int, rank: int, seed: int, batch: tuple[int, ...] = ()) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(*batch, n, rank, generator=generator, dtype=torch.float64)
    return a @ a.mT


def pair(out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> Kronecker:
    return Kronecker(definite(out, seed, batch), definite(inp, seed + 1000, batch))


def singular_pair(out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> Kronecker:
    return Kronecker(
        semidefinite(out, max(1, out // 2), seed, batch), semidefinite(inp, max(1, inp // 2), seed + 1000, batch)
    )


def _dense(out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> Matrix:
    return DenseMatrix(definite(out * inp, seed, batch), (out, inp))


def _diagonal(out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> Matrix:
    generator = torch.Generator().manual_seed(seed)
    return DiagonalMatrix(torch.rand(*batch, out, inp, generator=generator, dtype=torch.float64) + 0.1)


def _identity(out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> Matrix:
    generator = torch.Generator().manual_seed(seed)
    return ScaledIdentity(torch.rand(batch, generator=generator, dtype=torch.float64) + 0.1, (out, inp))


def _joint(out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> Matrix:
    return pair(out, inp, seed, batch).joint(singular_pair(out, inp, seed + 7, batch)).combine(0.7, 1.9)


def _sum_of(k: int) -> Callable[..., Matrix]:
    def build(out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> Matrix:
        return KroneckerSum([pair(out, inp, seed + i, batch) for i in range(k)])

    return build


def _floored(out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> Matrix:
    """A singular curvature in its own eigenframe, and a floor that makes the sum definite."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.linalg.eigh(definite(n, seed + n, batch)).eigenvectors for n in (out, inp))
    values = torch.rand(*batch, out, inp, generator=generator, dtype=torch.float64)
    values[..., 0, 0] = 0
    return FlooredMatrix(JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values), 0.6, 0.4)


def turned(out: int, inp: int, seed: int) -> RotatedMatrix:
    """A frame with about half of its directions turned: never in a batch."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.linalg.eigh(definite(n, seed + n)).eigenvectors for n in (out, inp))
    values = torch.rand(out, inp, generator=generator, dtype=torch.float64) + 0.1
    index = torch.randperm(out * inp, generator=generator)[: max(1, out * inp // 2)].sort().values
    vectors = torch.linalg.eigh(definite(len(index), seed + 50)).eigenvectors
    return RotatedMatrix(JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values), index, vectors)


STRUCTURES: dict[str, Callable[..., Matrix]] = {
    "dense": _dense,
    "diagonal": _diagonal,
    "floored": _floored,
    "identity": _identity,
    "joint eigen": _joint,
    "kronecker": pair,
    "sum of one": _sum_of(1),
    "sum of two": _sum_of(2),
    "sum of three": _sum_of(3),
}

sizes = st.integers(1, 5)
seeds = st.integers(0, 10_000)
batches = st.sampled_from([(), (3,), (2, 1)])


def vec(v: Tensor) -> Tensor:
    return v.flatten(-2)[..., None]
