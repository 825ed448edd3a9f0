"""Precisions that are diagonal: one number for all parameters, or one for each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import checks
from posterity.algebra.base import Frame, IdentityFrame, Matrix, Valued, per_matrix
from posterity.algebra.dense import DenseMatrix
from posterity.errors import NotExact, NotSquare, SizeMismatch


@dataclass(frozen=True, eq=False)
class ScaledIdentity(Matrix):
    """scale · identity over an out × inp block, held as one number. The sum with any other structure is exact."""

    scale: Tensor  # *batch
    over: tuple[int, int]

    def __post_init__(self) -> None:
        checks.finite(self.scale, "ScaledIdentity.scale")
        if min(self.over) < 1:
            raise SizeMismatch(
                f"ScaledIdentity is over a block of {self.over[0]}×{self.over[1]}: both must be at least 1."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.over

    @property
    def batch(self) -> torch.Size:
        return self.scale.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.scale.dtype

    @property
    def device(self) -> torch.device:
        return self.scale.device

    def _wide(self) -> Tensor:
        return self.scale[..., None, None]

    def _positive(self) -> Tensor:
        checks.positive(self.scale, "ScaledIdentity")
        return self._wide().double()

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self._wide() * self._fits(v)

    def logdet(self) -> Float[Tensor, "*batch"]:
        return self.size * self._positive().log()[..., 0, 0]

    def trace(self) -> Float[Tensor, "*batch"]:
        return self.size * self.scale

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return self._wide() * torch.eye(self.size, dtype=self.dtype, device=self.device)

    def _factorise(self) -> Frame:
        return IdentityFrame(self._positive().expand(*self.batch, *self.over))

    def diagonal_in(self, left: Tensor, right: Tensor) -> Float[Tensor, "*batch out inp"]:
        return self._wide() * (left.square().sum(-1)[..., :, None] * right.square().sum(-1)[..., None, :])

    def factors(self) -> tuple[Float[Tensor, "*batch out out"], Float[Tensor, "*batch inp inp"]]:
        """The same as a Kronecker pair: the root of the scale on either side."""
        checks.positive(self.scale, "ScaledIdentity")
        left, right = (torch.eye(n, dtype=self.dtype, device=self.device) for n in self.over)
        root = self._wide().sqrt()
        return root * left, root * right

    def jittered(self, relative: float) -> ScaledIdentity:
        return ScaledIdentity(self.scale * (1 + relative), self.over)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ScaledIdentity:
        return ScaledIdentity(self.scale.to(device=device, dtype=dtype), self.over)

    def __add__(self, other: Matrix) -> Matrix:
        self._same_shape(other)
        return (
            ScaledIdentity(self.scale + other.scale, self.over) if isinstance(other, ScaledIdentity) else other + self
        )

    def __mul__(self, scalar: float | Tensor) -> ScaledIdentity:
        return ScaledIdentity(self.scale * scalar, self.over)


def scaled_identity(scale: float, over: tuple[int, int]) -> ScaledIdentity:
    """`scale` times the identity over a block, in float64."""
    if not math.isfinite(scale):
        checks.finite(torch.tensor(scale), "the scale of an identity")
    return ScaledIdentity(torch.tensor(scale, dtype=torch.float64), over)


@dataclass(frozen=True, eq=False)
class DiagonalMatrix(Valued):
    """diag(vec(values)), `values` shaped like the block itself. Everything costs O(out·inp)."""

    values: Tensor  # *batch out inp

    def __post_init__(self) -> None:
        if self.values.ndim < 2 or 0 in self.values.shape[-2:]:
            raise NotSquare(
                f"DiagonalMatrix.values has shape {tuple(self.values.shape)}: it must look like "
                "the block, (..., out, inp)."
            )
        checks.finite(self.values, "DiagonalMatrix.values")

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self.values * self._fits(v)

    def logdet(self) -> Float[Tensor, "*batch"]:
        return self._positive().log().sum((-2, -1))

    def trace(self) -> Float[Tensor, "*batch"]:
        return self.values.sum((-2, -1))

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return torch.diag_embed(self.values.flatten(-2))

    def _factorise(self) -> Frame:
        return IdentityFrame(self._positive())

    def diagonal_in(self, left: Tensor, right: Tensor) -> Float[Tensor, "*batch out inp"]:
        return left.square() @ self.values.to(left.dtype) @ right.square().mT

    def jittered(self, relative: float) -> DiagonalMatrix:
        return DiagonalMatrix(self.values + relative * self.values.mean((-2, -1), keepdim=True))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> DiagonalMatrix:
        return DiagonalMatrix(self.values.to(device=device, dtype=dtype))

    def __add__(self, other: Matrix) -> Matrix:
        self._same_shape(other)
        match other:
            case DiagonalMatrix():
                return DiagonalMatrix(self.values + other.values)
            case ScaledIdentity():
                return DiagonalMatrix(self.values + other.scale[..., None, None])
            case DenseMatrix():
                return other + self
        raise NotExact(
            f"the sum of a DiagonalMatrix and a {type(other).__name__} is neither: use one structure for both, "
            "or DenseMatrix(a.dense(), a.shape) where the block is small."
        )

    def __mul__(self, scalar: float | Tensor) -> DiagonalMatrix:
        return DiagonalMatrix(self.values * per_matrix(scalar))
