"""The one small interface behind every structured matrix, and checks of its numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.algebra.frame import Frame
from posterity.errors import NotExact, NotFinite, NotPositiveDefinite, NotReal, NotStorable, SizeMismatch

LARGE = 1024
"""Sides from which a factor in float32 is decomposed, and its frame kept, in float32: half the memory, a third of the time.

Its eigenvalues are then good to about 10⁻⁷ of the largest, which is what the rounding of its entries left of them."""
PIECE = 1 << 21
"""Entries of a temporary (16 MB in float64), where a product for each of many directions is needed."""


class Matrix(ABC):
    """A symmetric matrix that acts on `vec(W)`, `W` an out × inp matrix read row by row.

    Operations are exact. Leading batch dimensions are allowed everywhere and broadcast.
    Products (`@`, `quadratic`) run in the precision the matrix is stored in; whatever factorises
    (`solve`, `logdet`, `sample`) runs in float64 and needs positive definiteness.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(out, inp): the shape of the matrices acted on, not of the dense form."""

    @property
    @abstractmethod
    def batch(self) -> torch.Size:
        """Leading dimensions: how many matrices of this shape are held."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The precision it is stored in, and products run in."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where its tensors are."""

    @abstractmethod
    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        """This matrix times vec(v), as a matrix again."""

    @abstractmethod
    def logdet(self) -> Float[Tensor, "*batch"]:
        """log det of the dense form, in float64. Needs positive definiteness."""

    @abstractmethod
    def trace(self) -> Float[Tensor, "*batch"]:
        """The trace of the dense form."""

    @abstractmethod
    def dense(self) -> Float[Tensor, "*batch size size"]:
        """The full (out·inp)² matrix: for tests and small problems."""

    @abstractmethod
    def diagonal_in(
        self, left: Float[Tensor, "*b out out"], right: Float[Tensor, "*b inp inp"]
    ) -> Float[Tensor, "*batch out inp"]:
        """The diagonal of (left ⊗ right) · self · (left ⊗ right)ᵀ, as a matrix: O(out³ + inp³), no dense form."""

    def among(
        self, left: Float[Tensor, "out out"], right: Float[Tensor, "inp inp"], index: Int[Tensor, " some"]
    ) -> Float[Tensor, "some some"]:
        """(left ⊗ right) · self · (left ⊗ right)ᵀ between some directions (row · inp + column): a product for each of them."""
        found = []
        for some in index.split(max(1, PIECE // self.size)):
            rows, columns = some // right.shape[-2], some % right.shape[-2]
            seen = left @ self.matmul(left[rows, :, None] * right[columns, None, :]) @ right.mT
            found.append(seen.flatten(-2)[:, index])
        return torch.cat(found)

    @abstractmethod
    def jittered(self, relative: float) -> Matrix:
        """A multiple of the identity added to each factor: `relative` times its mean eigenvalue.

        The remedy for a matrix that is singular or not quite definite. Nothing here asks for it by itself.
        """

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """The same on another device, or in another precision."""
        own = fields(self)  # type: ignore[arg-type]
        return replace(self, **{f.name: _moved(getattr(self, f.name), device, dtype) for f in own})  # type: ignore[type-var]

    def __add__(self, other: Matrix) -> Matrix:
        self._same_shape(other)
        found = self._plus(other) or other._plus(self)
        if found is None:
            raise NotExact(
                f"the sum of a {type(self).__name__} and a {type(other).__name__} is neither: `in_one_frame([a, b])` or "
                "`in_turned_frame([a, b])` keeps it almost exactly, .combine(alpha, beta) adds multiples of the reference of a "
                "joint eigenbasis, and DenseMatrix(a.dense(), a.shape) holds it where the block is small."
            )
        return found

    def _plus(self, other: Matrix) -> Matrix | None:
        """The sum with another structure, where this one can hold it exactly."""
        return None

    @abstractmethod
    def __mul__(self, scalar: float | Tensor) -> Matrix: ...

    def __rmul__(self, scalar: float | Tensor) -> Matrix:
        return self * scalar

    def __truediv__(self, scalar: float | Tensor) -> Matrix:
        return self * (1 / scalar)

    def __matmul__(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self.matmul(v)

    def quadratic(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r"]:
        """vec(v)ᵀ · self · vec(v)."""
        return (v * self.matmul(v)).sum((-2, -1))

    def frame(self) -> Frame:
        """The two bases in which this (definite) matrix is diagonal, in float64. Computed once and kept.

        Where a gradient is wanted nothing is kept. `NotExact` where there are no such bases, as for a dense matrix.
        """
        kept: Frame | None = self.__dict__.get("_frame")
        if kept is not None:
            return kept
        # What is kept must serve later, whatever mode is on now: no tensor of inference mode, and no lost gradient.
        with torch.inference_mode(False), torch.enable_grad():
            made = self._factorise()
        if made.requires_grad:
            return made if torch.is_grad_enabled() else made.detach()
        self.__dict__["_frame"] = made
        return made

    def _factorise(self) -> Frame:
        raise NotExact(
            f"a {type(self).__name__} over {self.shape[0]}×{self.shape[1]} is not diagonal in a product of two bases: use "
            "`solve`, `whiten` or `trace_of`."
        )

    def solve(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        """The w with `self @ w == v`."""
        v, frame = self._fits(v), self.frame()
        return frame.back(frame.into(v.double()) / frame.values).to(v.dtype)

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "n *batch out inp"]:
        """n independent draws from the centred normal whose *precision* is this matrix."""
        frame = self.frame()
        z = standard_normal(n, frame.values, (*self.batch, *self.shape), generator)
        return frame.back(z * frame.values.rsqrt()).to(self.dtype)

    def trace_of(self, other: Matrix) -> Float[Tensor, "*batch"]:
        """tr(other · self⁻¹), exactly, whatever the two structures: in this one's frame only a diagonal is needed."""
        self._same_shape(other)
        frame = self.frame()
        return (other.diagonal_in(frame.left, frame.right) / frame.values).sum((-2, -1))

    def whiten(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        """Some linear map of v with <whiten(u), whiten(v)> = <u, self⁻¹ v>, in float64."""
        frame = self.frame()
        return frame.into(self._fits(v).double()) * frame.values.rsqrt()

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        """The kind of structure, and its tensors by role: what tells one matrix from another, and what a file holds of it."""
        raise NotStorable(f"the precision is a {type(self).__name__}, a structure that no file has a place for.")

    @property
    def size(self) -> int:
        """The side of the dense form: how many parameters the matrix is over."""
        return self.shape[0] * self.shape[1]

    def _fits(self, v: Tensor) -> Tensor:
        if v.ndim < 2 or tuple(v.shape[-2:]) != self.shape:
            out, inp = self.shape
            raise SizeMismatch(
                f"{type(self).__name__} acts on {out}×{inp} matrices and was given one of shape "
                f"{'×'.join(map(str, v.shape)) or 'scalar'}: reshape the argument to (..., {out}, {inp})."
            )
        return v.to(torch.promote_types(v.dtype, self.dtype))

    def _same_shape(self, other: Matrix) -> None:
        if self.shape != other.shape:
            raise SizeMismatch(
                f"cannot add a matrix over {self.shape[0]}×{self.shape[1]} and one over "
                f"{other.shape[0]}×{other.shape[1]}: both must belong to blocks of one shape."
            )


class FactorisedSum(Matrix):
    """A sum that is factorised as one matrix of another structure, exactly."""

    @property
    @abstractmethod
    def total(self) -> Matrix:
        """The sum, as one matrix."""

    def frame(self) -> Frame:
        return self.total.frame()

    def solve(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        v = self._fits(v)
        return self.total.solve(v).to(v.dtype)

    def logdet(self) -> Float[Tensor, "*batch"]:
        return self.total.logdet()

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "n *batch out inp"]:
        return self.total.sample(n, generator=generator).to(self.dtype)

    def trace_of(self, other: Matrix) -> Float[Tensor, "*batch"]:
        return self.total.trace_of(other)

    def whiten(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self.total.whiten(self._fits(v))


class ValueMatrix(Matrix):
    """A matrix whose tensor of values, shaped like the block, decides its batch, precision and device."""

    values: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[-2], self.values.shape[-1]

    @property
    def batch(self) -> torch.Size:
        return self.values.shape[:-2]

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def _positive(self) -> Tensor:
        positive(self.values, type(self).__name__)
        return self.values.double()


def _moved(value: Any, device: torch.device | str | None, dtype: torch.dtype | None) -> Any:
    """A tensor, or what holds some; indices stay whole numbers."""
    if isinstance(value, Tensor):
        return value.to(device=device, dtype=dtype if value.is_floating_point() else None)
    if isinstance(value, tuple):
        return tuple(_moved(item, device, dtype) for item in value)
    return value.to(device, dtype) if hasattr(value, "to") else value


def per_matrix(scalar: float | Tensor) -> float | Tensor:
    """A factor per batch element, ready to multiply matrices with two trailing dimensions."""
    return scalar[..., None, None] if isinstance(scalar, Tensor) and scalar.ndim else scalar


def standard_normal(
    n: int, like: Tensor, shape: tuple[int, ...], generator: torch.Generator | None
) -> Float[Tensor, "..."]:
    """Float64 noise on the device of `like`, drawn where the generator lives so that a seed means one thing."""
    where = like.device if generator is None else generator.device
    return torch.randn((n, *shape), dtype=torch.float64, device=where, generator=generator).to(like.device)


def finite(x: Tensor, name: str) -> None:
    """Refuse entries that are no finite real numbers."""
    if not x.is_floating_point():
        raise NotReal(f"{name} has dtype {x.dtype}: convert it with .double() first.")
    # The sum is finite only if every entry is (or on overflow, which the exact look below clears up),
    # and unlike isfinite() it allocates nothing.
    if not torch.isfinite(x.sum()):
        bad = ~torch.isfinite(x)
        if bad.any():
            first = tuple(bad.nonzero()[0].tolist())
            raise NotFinite(
                f"{name} has {int(bad.sum())} entries that are NaN or infinite, the first at {first}: "
                "look for a diverged loss or an overflow in half precision upstream."
            )


def positive(x: Tensor, name: str) -> None:
    """Refuse eigenvalues that are not above zero."""
    if not bool((x > 0).all()):
        raise NotPositiveDefinite(
            f"{name} has the eigenvalue {float(x.min()):.2e}, and all must be positive: add a prior precision, "
            "or ask for a jitter with .jittered(1e-8)."
        )


def is_large(*sides: int) -> bool:
    """Whether a block with these sides keeps its bases in the precision of its factors."""
    return max(sides) >= LARGE
