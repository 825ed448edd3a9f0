"""A full matrix: the oracle that the structured ones are tested against, and a form that every sum has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import checks
from posterity.algebra.base import Matrix, Valued, per_matrix, standard_normal
from posterity.errors import SizeMismatch


@dataclass(frozen=True, eq=False)
class DenseMatrix(Valued):
    """A (out·inp)² matrix over vec of an out × inp block. Products O(n²), factorising O(n³), n = out·inp."""

    values: Tensor  # *batch size size
    over: tuple[int, int]

    def __post_init__(self) -> None:
        checks.symmetric(self.values, "DenseMatrix.values")
        out, inp = self.over
        if out * inp != self.values.shape[-1]:
            raise SizeMismatch(
                f"DenseMatrix.values is {self.values.shape[-1]}×{self.values.shape[-1]} and the block "
                f"{out}×{inp}: the side must be {out}·{inp} = {out * inp}."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.over

    @cached_property
    def _factor(self) -> Tensor:
        return checks.cholesky(self.values, "DenseMatrix")

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

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> DenseMatrix:
        return DenseMatrix(self.values.to(device=device, dtype=dtype), self.over)

    def __add__(self, other: Matrix) -> DenseMatrix:
        self._same_shape(other)
        return DenseMatrix(self.values + other.dense(), self.over)

    def __mul__(self, scalar: float | Tensor) -> DenseMatrix:
        return DenseMatrix(self.values * per_matrix(scalar), self.over)


def plus_identity(x: Float[Tensor, "*b n n"], relative: float) -> Float[Tensor, "*b n n"]:
    """x + relative · (mean eigenvalue of x) · identity."""
    mean = x.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return x + relative * mean * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
