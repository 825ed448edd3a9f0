"""A full matrix: the oracle that the structured ones are tested against, and a form that every sum has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra.base import Matrix, ValueMatrix, finite, is_large, per_matrix, standard_normal
from posterity.errors import NotPositiveDefinite, NotSquare, NotSymmetric, SizeMismatch


@dataclass(frozen=True, eq=False)
class DenseMatrix(ValueMatrix):
    """A (out·inp)² matrix over vec of an out × inp block. Products O(n²), factorising O(n³), n = out·inp."""

    values: Tensor  # *batch size size
    over: tuple[int, int]

    def __post_init__(self) -> None:
        symmetric(self.values, "DenseMatrix.values")
        out, inp = self.over
        if out * inp != self.values.shape[-1]:
            raise SizeMismatch(
                f"DenseMatrix.values is {self.values.shape[-1]}×{self.values.shape[-1]} and the block "
                f"{out}×{inp}: the side must be {out}·{inp} = {out * inp}."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.over

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        return "dense", {"values": self.values}

    @cached_property
    def _factor(self) -> Tensor:
        return cholesky(self.values, "DenseMatrix")

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        v = self._fits(v)
        return (self.values.to(v.dtype) @ v.flatten(-2)[..., None]).squeeze(-1).unflatten(-1, self.over)

    def solve(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        v = self._fits(v)
        flat = torch.cholesky_solve(v.double().flatten(-2)[..., None], self._factor)
        return flat.squeeze(-1).unflatten(-1, self.over).to(v.dtype)

    def logdet(self) -> Float[Tensor, "*batch"]:
        return 2 * self._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def trace(self) -> Float[Tensor, "*batch"]:
        return self.values.diagonal(dim1=-2, dim2=-1).sum(-1)

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "n *batch out inp"]:
        z = standard_normal(n, self.values, (*self.batch, self.size, 1), generator)
        draws = torch.linalg.solve_triangular(self._factor.mT, z, upper=True)
        return draws.squeeze(-1).unflatten(-1, self.over).to(self.dtype)

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return self.values

    def diagonal_in(self, left: Tensor, right: Tensor) -> Float[Tensor, "*batch out inp"]:
        frame = torch.einsum("...ij,...kl->...ikjl", left, right).flatten(-4, -3).flatten(-2)
        return ((frame @ self.values.to(frame.dtype)) * frame).sum(-1).unflatten(-1, self.over)

    def trace_of(self, other: Matrix) -> Float[Tensor, "*batch"]:
        self._same_shape(other)
        return torch.cholesky_solve(other.dense().double(), self._factor).diagonal(dim1=-2, dim2=-1).sum(-1)

    def whiten(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        flat = self._fits(v).double().flatten(-2)[..., None]
        return torch.linalg.solve_triangular(self._factor, flat, upper=False).squeeze(-1).unflatten(-1, self.over)

    def jittered(self, relative: float) -> DenseMatrix:
        return DenseMatrix(plus_identity(self.values, relative), self.over)

    def _plus(self, other: Matrix) -> DenseMatrix:
        return DenseMatrix(self.values + other.dense(), self.over)

    def __mul__(self, scalar: float | Tensor) -> DenseMatrix:
        return DenseMatrix(self.values * per_matrix(scalar), self.over)


def plus_identity(x: Float[Tensor, "*b n n"], relative: float) -> Float[Tensor, "*b n n"]:
    """x + relative · (mean eigenvalue of x) · identity."""
    mean = x.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return x + relative * mean * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def symmetric(x: Tensor, name: str) -> None:
    """Square, finite, and equal to its transpose up to the rounding of its own precision."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] == 0:
        raise NotSquare(f"{name} has shape {tuple(x.shape)}: a (non-empty) square matrix is needed.")
    finite(x, name)
    if x.shape[-1] == 1 or x.numel() == 0:
        return
    if x.ndim == 2 and is_large(len(x)) and looks_symmetric(x):
        return
    off = (x - x.mT).abs().amax((-2, -1))
    allowed = 10 * max(100, x.shape[-1]) * torch.finfo(x.dtype).eps * x.abs().amax((-2, -1))
    if (off > allowed).any():
        worst = float((off / x.abs().amax((-2, -1)).clamp_min(torch.finfo(x.dtype).tiny)).max())
        raise NotSymmetric(
            f"{name} differs from its transpose by up to {worst:.1e} of its largest entry: rounding does not "
            "explain that. Pass (X + X.mT) / 2 if the asymmetry is meant to be dropped."
        )


def looks_symmetric(x: Float[Tensor, "n n"]) -> bool:
    """Whether random directions see no difference between a large matrix and its transpose, beyond rounding.

    Four of them find any difference, at n² instead of a second matrix in memory.
    """
    probes = torch.randint(0, 2, (len(x), 4), device=x.device).to(x.dtype).mul_(2).sub_(1)
    low, high = torch.aminmax(x)
    largest = max(-float(low), float(high))
    if not math.isfinite(largest):
        return False
    allowed = 10 * max(100, len(x)) * torch.finfo(x.dtype).eps * largest
    return float((x @ probes - x.mT @ probes).abs().max()) <= allowed


def cholesky(x: Float[Tensor, "*b n n"], name: str) -> Float[Tensor, "*b n n"]:
    """The lower Cholesky factor in float64, or an error with the smallest and the largest eigenvalue."""
    x = x.double()
    factor, info = torch.linalg.cholesky_ex(x)
    # A pivot can also come out positive and meaningless (NaN passes no comparison inside LAPACK).
    if bool((info == 0).all()) and bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all()):
        return factor
    values = torch.linalg.eigvalsh(x)
    raise NotPositiveDefinite(
        f"{name} ({x.shape[-1]}×{x.shape[-1]}) is not positive definite: its eigenvalues reach from "
        f"{float(values.min()):.2e} to {float(values.max()):.2e}. Add a prior precision, "
        "or ask for a jitter with .jittered(1e-8)."
    )
