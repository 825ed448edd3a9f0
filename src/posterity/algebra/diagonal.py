"""Matrices that are diagonal: one number, one number for each parameter, or values in a product of two bases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra.base import Matrix, ValueMatrix, finite, is_large, per_matrix, positive
from posterity.algebra.frame import Frame
from posterity.errors import NotFinite, NotSquare, SizeMismatch


@dataclass(frozen=True, eq=False)
class ScaledIdentity(Matrix):
    """scale · identity over an out × inp block, held as one number. The sum with any other structure is exact."""

    scale: Tensor  # *batch
    over: tuple[int, int]

    def __post_init__(self) -> None:
        finite(self.scale, "ScaledIdentity.scale")
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
        positive(self.scale, "ScaledIdentity")
        return self._wide().double()

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self._wide() * self._fits(v)

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        return "identity", {"scale": self.scale}

    def logdet(self) -> Float[Tensor, "*batch"]:
        return self.size * self._positive().log()[..., 0, 0]

    def trace(self) -> Float[Tensor, "*batch"]:
        return self.size * self.scale

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return self._wide() * torch.eye(self.size, dtype=self.dtype, device=self.device)

    def _factorise(self) -> Frame:
        return Frame(self._positive().expand(*self.batch, *self.over))

    def diagonal_in(self, left: Tensor, right: Tensor) -> Float[Tensor, "*batch out inp"]:
        return self._wide() * (left.square().sum(-1)[..., :, None] * right.square().sum(-1)[..., None, :])

    def factors(self) -> tuple[Float[Tensor, "*batch out out"], Float[Tensor, "*batch inp inp"]]:
        """This matrix as a Kronecker pair, with the root of the scale on either side."""
        positive(self.scale, "ScaledIdentity")
        left, right = (torch.eye(n, dtype=self.dtype, device=self.device) for n in self.over)
        root = self._wide().sqrt()
        return root * left, root * right

    def jittered(self, relative: float) -> ScaledIdentity:
        return ScaledIdentity(self.scale * (1 + relative), self.over)

    def _plus(self, other: Matrix) -> Matrix | None:
        return ScaledIdentity(self.scale + other.scale, self.over) if isinstance(other, ScaledIdentity) else None

    def __mul__(self, scalar: float | Tensor) -> ScaledIdentity:
        return ScaledIdentity(self.scale * scalar, self.over)


def scaled_identity(scale: float, over: tuple[int, int]) -> ScaledIdentity:
    """`scale` times the identity over a block, in float64."""
    if not math.isfinite(scale):
        finite(torch.tensor(scale), "the scale of an identity")
    return ScaledIdentity(torch.tensor(scale, dtype=torch.float64), over)


@dataclass(frozen=True, eq=False)
class DiagonalMatrix(ValueMatrix):
    """diag(vec(values)), `values` shaped like the block itself. Everything costs O(out·inp)."""

    values: Tensor  # *batch out inp

    def __post_init__(self) -> None:
        if self.values.ndim < 2 or 0 in self.values.shape[-2:]:
            raise NotSquare(
                f"DiagonalMatrix.values has shape {tuple(self.values.shape)}: it must look like "
                "the block, (..., out, inp)."
            )
        finite(self.values, "DiagonalMatrix.values")

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self.values * self._fits(v)

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        return "diagonal", {"values": self.values}

    def logdet(self) -> Float[Tensor, "*batch"]:
        return self._positive().log().sum((-2, -1))

    def trace(self) -> Float[Tensor, "*batch"]:
        return self.values.sum((-2, -1))

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return torch.diag_embed(self.values.flatten(-2))

    def _factorise(self) -> Frame:
        return Frame(self._positive())

    def diagonal_in(self, left: Tensor, right: Tensor) -> Float[Tensor, "*batch out inp"]:
        return left.square() @ self.values.to(left.dtype) @ right.square().mT

    def jittered(self, relative: float) -> DiagonalMatrix:
        return DiagonalMatrix(self.values + relative * self.values.mean((-2, -1), keepdim=True))

    def _plus(self, other: Matrix) -> Matrix | None:
        match other:
            case DiagonalMatrix():
                return DiagonalMatrix(self.values + other.values)
            case ScaledIdentity():
                return DiagonalMatrix(self.values + other.scale[..., None, None])
        return None

    def __mul__(self, scalar: float | Tensor) -> DiagonalMatrix:
        return DiagonalMatrix(self.values * per_matrix(scalar))


@dataclass(frozen=True, eq=False)
class Basis:
    """An invertible matrix with its inverse and log |det|: one side of a joint eigenbasis."""

    matrix: Float[Tensor, "*b n n"]
    inverse: Float[Tensor, "*b n n"]
    logabsdet: Float[Tensor, "*b"]
    is_orthogonal: bool = False

    @classmethod
    def orthogonal(cls, vectors: Float[Tensor, "*b n n"]) -> Basis:
        """A basis of orthonormal columns: its inverse is its transpose."""
        return cls(vectors, vectors.mT, vectors.new_zeros(vectors.shape[:-2]), True)

    def is_same(self, other: Basis) -> bool:
        """Whether both are one basis, by their tensors, not by their numbers."""
        return self is other or (self.matrix is other.matrix and self.is_orthogonal and other.is_orthogonal)

    def tensors(self, side: str) -> dict[str, Tensor]:
        """By role. The inverse and the determinant are kept, not recomputed: only so are draws after loading the same."""
        if self.is_orthogonal:
            return {f"{side}.orthogonal": self.matrix}
        return {f"{side}.matrix": self.matrix, f"{side}.inverse": self.inverse, f"{side}.logabsdet": self.logabsdet}

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Basis:
        """The same on another device, or in another precision."""
        matrix, inverse = (x.to(device=device, dtype=dtype) for x in (self.matrix, self.inverse))
        # A log det multiplies it by hundreds of columns: its rounding would show in a KL divergence.
        logabsdet = self.logabsdet.to(device=device, dtype=torch.float64)
        return Basis(matrix, inverse, logabsdet, self.is_orthogonal)


@dataclass(frozen=True, eq=False)
class JointEigen(ValueMatrix):
    """(A⊗B) diag(values) (A⊗B)ᵀ, with A and B invertible and `values` out × inp.

    It makes weighted sums of two Kronecker products exact and cheap: for a definite P and a semidefinite F there are A, B with

        P = (A⊗B)(A⊗B)ᵀ      F = (A⊗B) diag(E) (A⊗B)ᵀ      βF + αP = (A⊗B) diag(βE + α) (A⊗B)ᵀ

    `P.joint(F)` is F in that basis, and `.combine(alpha, beta)` is βF + αP. With orthogonal bases this is also EKFAC's form.
    Set-up O(out³ + inp³) once; then log det, trace and combine cost O(out·inp), a solve or a draw four matmuls.
    """

    left: Basis
    right: Basis
    values: Tensor  # *batch out inp

    def __post_init__(self) -> None:
        expected = (self.left.matrix.shape[-1], self.right.matrix.shape[-1])
        if tuple(self.values.shape[-2:]) != expected:
            raise SizeMismatch(
                f"JointEigen has bases of sides {expected[0]} and {expected[1]} and values of shape "
                f"{tuple(self.values.shape)}: one value is needed for each pair of directions."
            )
        finite(self.values, "JointEigen.values")

    @property
    def is_orthogonal(self) -> bool:
        """Whether both bases are: the values are eigenvalues then."""
        return self.left.is_orthogonal and self.right.is_orthogonal

    def shares_bases(self, other: Matrix) -> bool:
        """Whether the other is diagonal in the very same bases: then sums and traces need no product."""
        return isinstance(other, JointEigen) and self.left.is_same(other.left) and self.right.is_same(other.right)

    def combine(self, alpha: float | Tensor = 1.0, beta: float | Tensor = 1.0) -> JointEigen:
        """β · self + α · reference, exactly."""
        return replace(self, values=per_matrix(beta) * self.values + per_matrix(alpha))

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        v = self._fits(v)
        a, b = self.left.matrix.to(v.dtype), self.right.matrix.to(v.dtype)
        return a @ (self.values * (a.mT @ v @ b)) @ b.mT

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        return "joint eigen", {**self.left.tensors("left"), **self.right.tensors("right"), "values": self.values}

    def logdet(self) -> Float[Tensor, "*batch"]:
        out, inp = self.shape
        frame = 2 * (inp * self.left.logabsdet + out * self.right.logabsdet)
        return frame + self._positive().log().sum((-2, -1))

    def trace(self) -> Float[Tensor, "*batch"]:
        a = self.left.matrix.square().sum(-2)
        b = self.right.matrix.square().sum(-2)
        return (a[..., None, :] @ self.values @ b[..., :, None])[..., 0, 0]

    def dense(self) -> Float[Tensor, "*batch size size"]:
        a, b = self.left.matrix, self.right.matrix
        frame = torch.einsum("...ij,...kl->...ikjl", a, b).flatten(-4, -3).flatten(-2)
        full = (frame * self.values.flatten(-2)[..., None, :]) @ frame.mT
        return (full + full.mT) / 2

    def _factorise(self) -> Frame:
        left, right = self.left.inverse, self.right.inverse
        if not is_large(*self.shape):
            left, right = left.double(), right.double()
        return Frame(self._positive(), (left, right))

    def diagonal_in(self, left: Tensor, right: Tensor) -> Float[Tensor, "*batch out inp"]:
        a, b = left @ self.left.matrix.to(left.dtype), right @ self.right.matrix.to(right.dtype)
        return a.square() @ self.values.to(left.dtype) @ b.square().mT

    def trace_of(self, other: Matrix) -> Float[Tensor, "*batch"]:
        if isinstance(other, JointEigen) and self.shares_bases(other):
            return (other.values.double() / self._positive()).sum((-2, -1))
        return super().trace_of(other)

    def jittered(self, relative: float) -> JointEigen:
        return replace(self, values=self.values + relative * self.values.mean((-2, -1), keepdim=True))

    def _plus(self, other: Matrix) -> Matrix | None:
        match other:
            case JointEigen() if self.shares_bases(other):
                return replace(self, values=self.values + other.values)
            case ScaledIdentity() if self.is_orthogonal:
                return replace(self, values=self.values + other.scale[..., None, None])
        return None

    def __mul__(self, scalar: float | Tensor) -> JointEigen:
        return replace(self, values=self.values * per_matrix(scalar))


def eigenvectors(
    factor: Float[Tensor, "n n"], *, single: bool | None = None, rank: int | None = None
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n n"]]:
    """Eigenvalues (none negative, ascending) and eigenvectors of a positive semidefinite factor.

    Args:
        factor: symmetric.
        single: whether to compute in float32; by default where the factor is in float32 and large.
        rank: an upper bound on its rank, such as the number of rows that it was summed from. Where that is less than half of
            the side of a large factor, only its range is diagonalised, and completed to a basis: many times sooner.
    Returns:
        Values in float64 and vectors as columns, in the precision they were computed in.
    """
    if single is None:
        single = factor.dtype == torch.float32 and is_large(len(factor))
    # At a largest entry of one: LAPACK's single precision does not converge where squares of entries leave its range.
    size = float(factor.abs().max())
    if not math.isfinite(size):
        raise NotFinite(
            "a factor of the curvature holds numbers beyond the range of its precision: inputs or gradients are very "
            "large. Scale the inputs, to mean 0 and deviation 1 say."
        )
    if size == 0:
        eye = torch.eye(len(factor), dtype=torch.float32 if single else torch.float64, device=factor.device)
        return torch.zeros(len(factor), dtype=torch.float64, device=factor.device), eye
    scaled = factor.to(torch.float32 if single else torch.float64) / size
    if rank is not None and is_large(len(factor)) and 2 * rank < len(factor):
        values, vectors = _in_its_range(scaled, rank)
        return values.double().clamp_min(0) * size, vectors
    try:
        values, vectors = torch.linalg.eigh(scaled)
    except RuntimeError:  # torch's LinAlgError is one
        if not single:
            raise
        # The same decomposition, where single precision did not converge.
        values, vectors = torch.linalg.eigh(scaled.double())
        vectors = vectors.float()
    return values.double().clamp_min(0) * size, vectors


def _in_its_range(factor: Float[Tensor, "n n"], rank: int) -> tuple[Float[Tensor, "n"], Float[Tensor, "n n"]]:
    """The eigenvectors of a matrix of low rank: random combinations of its columns span its range, a QR the rest."""
    n = len(factor)
    probes = torch.randn(n, rank, generator=torch.Generator().manual_seed(n)).to(factor)
    # Twice: directions of small eigenvalues are not lost in the rounding of large ones.
    near = torch.linalg.qr(factor @ probes).Q
    basis = torch.linalg.qr(factor @ near, mode="complete").Q
    span = basis[:, :rank]
    small = span.mT @ (factor @ span)
    values, turn = torch.linalg.eigh((small + small.mT).double() / 2)
    vectors = torch.cat((basis[:, rank:], span @ turn.to(span)), 1)
    return torch.cat((values.new_zeros(n - rank), values)), vectors
