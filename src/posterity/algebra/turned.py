"""An eigenframe some of whose directions are turned among themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra.base import PIECE, Matrix, ValueMatrix, standard_normal
from posterity.algebra.dense import DenseMatrix
from posterity.algebra.diagonal import JointEigen, ScaledIdentity
from posterity.algebra.frame import Frame
from posterity.errors import NotExact, NotSquare, SizeMismatch


@dataclass(frozen=True, eq=False)
class RotatedMatrix(ValueMatrix):
    """(A⊗B) T diag(values) Tᵀ (A⊗B)ᵀ, T an orthogonal matrix that differs from the identity among some directions only.

    No product of two bases diagonalises a sum of several Kronecker products, but what it leaves off the diagonal lies mostly
    between a few hundred directions. With these turned the sum is kept almost exactly, and a floor still adds to every value
    alike. Products, solutions and draws cost those of the frame and two products with T's `vectors`.
    """

    frame_of: JointEigen
    """Orthogonal bases, and the values: along turned directions at the places of `index`."""
    index: Tensor  # some
    """The directions that are turned, row · inp + column each, in ascending order."""
    vectors: Tensor  # some some
    """The turned directions as columns."""

    def __post_init__(self) -> None:
        bases, count = self.frame_of, self.index.numel()
        if bases.batch or not bases.is_orthogonal:
            raise NotExact("directions are turned in one frame of orthogonal bases: a batch, or any other, has none.")
        if tuple(self.vectors.shape) != (count, count):
            raise NotSquare(f"{count} directions are turned by vectors of shape {tuple(self.vectors.shape)}.")
        if self.index.dtype != torch.int64 or self.index.ndim != 1:
            raise SizeMismatch(
                f"the directions to turn are one row of int64, not {self.index.dtype} {tuple(self.index.shape)}."
            )
        inside = bool((self.index >= 0).all()) and bool((self.index < bases.size).all())
        if not count or not inside or not bool((self.index.diff() > 0).all()):
            raise SizeMismatch(
                f"the directions to turn are different numbers from 0 to {bases.size - 1}, in ascending order."
            )

    @property
    def values(self) -> Float[Tensor, "out inp"]:  # type: ignore[override]
        """The eigenvalues: those of turned directions at the places of `index`."""
        return self.frame_of.values

    def into(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*v out inp"]:
        """Coordinates along the turned directions."""
        return self.turn(self._left(v).mT @ v @ self._right(v))

    def back(self, z: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*v out inp"]:
        """The inverse of `into`, and its transpose."""
        return self._left(z) @ self.turn(z, back=True) @ self._right(z).mT

    def turn(self, z: Float[Tensor, "*v out inp"], *, back: bool = False) -> Float[Tensor, "*v out inp"]:
        """Coordinates along the turned directions, from those along the products of both bases; or the way `back`."""
        flat = z.flatten(-2).clone()
        flat[..., self.index] = flat[..., self.index] @ (self.vectors.mT if back else self.vectors).to(z)
        return flat.unflatten(-1, self.shape)

    def along(self, other: Matrix) -> Float[Tensor, "out inp"]:
        """The diagonal of another matrix along the turned directions, in float64."""
        left, right = (basis.matrix.double().mT for basis in (self.frame_of.left, self.frame_of.right))
        found = other.diagonal_in(left, right).double().flatten()
        v = self.vectors.double()
        found[self.index] = ((v.mT @ other.among(left, right, self.index).double()) * v.mT).sum(-1)
        return found.unflatten(-1, self.shape)

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        v = self._fits(v)
        return self.back(self.values.to(v) * self.into(v))

    def solve(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        v = self._fits(v)
        return self.back(self.into(v.double()) / self._positive()).to(v.dtype)

    def logdet(self) -> Float[Tensor, ""]:
        return self._positive().log().sum()

    def trace(self) -> Float[Tensor, ""]:
        return self.values.sum()

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "n out inp"]:
        z = standard_normal(n, self.values, self.shape, generator)
        return self.back(z * self._positive().rsqrt()).to(self.dtype)

    def whiten(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self.into(self._fits(v).double()) * self._positive().rsqrt()

    def trace_of(self, other: Matrix) -> Float[Tensor, ""]:
        self._same_shape(other)
        return (self.along(other) / self._positive()).sum()

    def dense(self) -> Float[Tensor, "size size"]:
        eye = torch.eye(self.size, dtype=self.dtype, device=self.device).unflatten(-1, self.shape)
        columns = self.into(eye).flatten(-2)
        full = (columns * self.values.flatten()) @ columns.mT
        return (full + full.mT) / 2

    def diagonal_in(
        self, left: Float[Tensor, "*b out out"], right: Float[Tensor, "*b inp inp"]
    ) -> Float[Tensor, "*b out inp"]:
        values = self.values.flatten()
        apart = values.index_fill(0, self.index, 0.0).unflatten(-1, self.shape)
        total = replace(self.frame_of, values=apart).diagonal_in(left, right)
        step = max(1, PIECE // self.size)
        for columns, some in zip(self.vectors.mT.split(step), self.index.split(step), strict=True):
            z = columns.new_zeros(len(columns), self.size)
            z[:, self.index] = columns
            directions = self._left(left) @ z.unflatten(-1, self.shape).to(left) @ self._right(left).mT
            seen = left @ directions @ right.mT
            total = total + (values[some].to(seen)[:, None, None] * seen.square()).sum(0)
        return total

    def plain(self) -> JointEigen:
        """The diagonal along the products of both bases alone: what a frame without turned directions would keep."""
        values = self.values.flatten().clone()
        values[self.index] = self.vectors.square() @ values[self.index]
        return replace(self.frame_of, values=values.unflatten(-1, self.shape))

    def shares_directions(self, other: Matrix) -> bool:
        """Whether the other is diagonal along the very same directions."""
        return (
            isinstance(other, RotatedMatrix)
            and other.vectors is self.vectors
            and self.frame_of.shares_bases(other.frame_of)
        )

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        _, tensors = self.frame_of.tensors()
        # Files hold real numbers: these are exact in float64.
        return "turned", tensors | {"turned.index": self.index.double(), "turned.vectors": self.vectors}

    def _factorise(self) -> Frame:
        raise NotExact(
            f"a Turned over {self.shape[0]}×{self.shape[1]} is not diagonal in a product of two bases: make it by "
            'pt.update(..., join="frame"), or use `solve`, `whiten` or `trace_of`.'
        )

    def jittered(self, relative: float) -> RotatedMatrix:
        return replace(self, frame_of=self.frame_of.jittered(relative))

    def _plus(self, other: Matrix) -> Matrix | None:
        match other:
            case RotatedMatrix() if self.shares_directions(other):
                return self._with(self.values + other.values)
            case ScaledIdentity() if not other.batch:
                return self._with(self.values + other.scale)
        return None

    def __mul__(self, scalar: float | Tensor) -> Matrix:
        if isinstance(scalar, Tensor) and scalar.ndim:
            return DenseMatrix(self.dense(), self.shape) * scalar
        return self._with(self.values * float(scalar))

    def _with(self, values: Tensor) -> RotatedMatrix:
        return replace(self, frame_of=replace(self.frame_of, values=values))

    def _left(self, like: Tensor) -> Tensor:
        return self.frame_of.left.matrix.to(like)

    def _right(self, like: Tensor) -> Tensor:
        return self.frame_of.right.matrix.to(like)
