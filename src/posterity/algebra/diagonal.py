"""A precision per parameter."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import checks
from posterity.algebra.base import Frame, IdentityFrame, Matrix, Valued, per_matrix
from posterity.algebra.dense import DenseMatrix
from posterity.algebra.identity import ScaledIdentity
from posterity.errors import NotExact, NotSquare


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
