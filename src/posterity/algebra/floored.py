"""share · curvature + floor · identity: the precision of a prior that was learned from data.

Both numbers stay adjustable after learning. A share of 0 is the isotropic prior, so the family contains its own baseline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra.base import Matrix
from posterity.algebra.dense import DenseMatrix
from posterity.algebra.diagonal import DiagonalMatrix
from posterity.algebra.eigen import JointEigen
from posterity.algebra.frame import Frame
from posterity.algebra.identity import ScaledIdentity, scaled_identity
from posterity.errors import NotExact


@dataclass(frozen=True, eq=False)
class Floored(Matrix):
    """share · curvature + floor · identity, exactly, with both terms kept apart.

    `curvature` is an eigenframe with values (a `JointEigen` with orthogonal bases), a diagonal, a dense matrix or a multiple of
    the identity: adding a floor leaves each of these what it is. It may be singular; the sum must be definite to be
    factorised. Everything costs what it costs for the sum, which is formed once.
    """

    curvature: Matrix
    share: float = 1.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        for name in ("share", "floor"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"the {name} of a prior is at least 0 and finite, not {value}")
        match self.curvature:
            case JointEigen() if not (self.curvature.left.is_orthogonal and self.curvature.right.is_orthogonal):
                raise NotExact("a floor keeps the form of an eigenframe only where its bases are orthogonal.")
            case JointEigen() | DiagonalMatrix() | DenseMatrix() | ScaledIdentity():
                return
        raise NotExact(
            f"a floor changes the form of a {type(self.curvature).__name__}: bring it to one eigenframe first "
            "with `in_one_frame`."
        )

    @cached_property
    def total(self) -> Matrix:
        """The sum, as one matrix of the curvature's own kind."""
        floor = scaled_identity(self.floor, self.shape).to(self.device, self.dtype)
        return self.curvature * self.share + floor

    def adjusted(self, share: float | None = None, floor: float | None = None) -> Floored:
        """The same curvature with other numbers."""
        return Floored(self.curvature, self.share if share is None else share, self.floor if floor is None else floor)

    @property
    def shape(self) -> tuple[int, int]:
        return self.curvature.shape

    @property
    def batch(self) -> torch.Size:
        return self.curvature.batch

    @property
    def dtype(self) -> torch.dtype:
        return self.curvature.dtype

    @property
    def device(self) -> torch.device:
        return self.curvature.device

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self.total.matmul(v)

    def solve(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self.total.solve(v)

    def logdet(self) -> Float[Tensor, "*batch"]:
        return self.total.logdet()

    def trace(self) -> Float[Tensor, "*batch"]:
        return self.total.trace()

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "n *batch out inp"]:
        return self.total.sample(n, generator=generator)

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return self.total.dense()

    def _factorise(self) -> Frame:
        return self.total.frame()

    def diagonal_in(
        self, left: Float[Tensor, "*b out out"], right: Float[Tensor, "*b inp inp"]
    ) -> Float[Tensor, "*batch out inp"]:
        return self.total.diagonal_in(left, right)

    def trace_of(self, other: Matrix) -> Float[Tensor, "*batch"]:
        return self.total.trace_of(other)

    def whiten(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return self.total.whiten(v)

    def jittered(self, relative: float) -> Matrix:
        return self.total.jittered(relative)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Floored:
        return Floored(self.curvature.to(device, dtype), self.share, self.floor)

    def __add__(self, other: Matrix) -> Matrix:
        self._same_shape(other)
        if isinstance(other, ScaledIdentity) and not other.batch:
            return Floored(self.curvature, self.share, self.floor + float(other.scale))
        return self.total + (other.total if isinstance(other, Floored) else other)

    def __mul__(self, scalar: float | Tensor) -> Matrix:
        if isinstance(scalar, Tensor) and scalar.ndim:
            return self.total * scalar
        return Floored(self.curvature, self.share * float(scalar), self.floor * float(scalar))
