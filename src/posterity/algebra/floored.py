"""share · curvature + floor · identity, the precision of a prior that was learned; and its leading directions alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra.base import FactorisedSum, Matrix
from posterity.algebra.dense import DenseMatrix
from posterity.algebra.diagonal import DiagonalMatrix, JointEigen, ScaledIdentity, scaled_identity
from posterity.algebra.kronecker import Kronecker
from posterity.algebra.turned import RotatedMatrix
from posterity.errors import NotExact

FLOORED = "floored "
"""In front of the kind of a curvature that comes with a share and a floor."""
LEADING = 64
"""Eigenvectors of the inputs' side. Beyond them the curvature of ResNet-50's layers is within a hundredth of its largest."""


@dataclass(frozen=True, eq=False)
class FlooredMatrix(FactorisedSum):
    """share · curvature + floor · identity, exactly, with both terms kept apart and both numbers adjustable.

    A share of 0 is the isotropic prior, so the family contains its own baseline.

    `curvature` is an eigenframe with values (a `JointEigen` with orthogonal bases, or `RotatedMatrix`), a diagonal, a dense
    matrix or a multiple of the identity: adding a floor leaves each of these what it is. A Kronecker pair is kept too: products
    need nothing else, and whatever factorises takes its eigenframe, computed at first need. The curvature may be singular; the
    sum must be definite to be factorised. Everything costs what it costs for the sum, which is formed once.
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
            case JointEigen() if not self.curvature.is_orthogonal:
                raise NotExact("a floor keeps the form of an eigenframe only where its bases are orthogonal.")
            case JointEigen() | DiagonalMatrix() | DenseMatrix() | ScaledIdentity() | RotatedMatrix():
                return
            case Kronecker() if not self.curvature.batch:
                return
        raise NotExact(
            f"a floor changes the form of a {type(self.curvature).__name__}: bring it to one eigenframe first "
            "with `in_one_frame`."
        )

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

    @cached_property
    def total(self) -> Matrix:
        """The sum, as one matrix of the curvature's own kind, a pair in its eigenframe."""
        floor = scaled_identity(self.floor, self.shape).to(self.device, self.dtype)
        return self.diagonalised * self.share + floor

    @property
    def diagonalised(self) -> Matrix:
        """The curvature without share and floor, a pair in its eigenframe."""
        return self.curvature.in_eigenframe() if isinstance(self.curvature, Kronecker) else self.curvature

    @property
    def kept(self) -> Matrix:
        """The curvature as it is held, a pair in its eigenframe where that was computed before."""
        found: Matrix = self.curvature.__dict__.get("_eigenframe", self.curvature)
        return found

    def adjusted(self, share: float | None = None, floor: float | None = None) -> FlooredMatrix:
        """The same curvature with other numbers."""
        return FlooredMatrix(
            self.curvature, self.share if share is None else share, self.floor if floor is None else floor
        )

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        if isinstance(self.curvature, Kronecker):
            v = self._fits(v)
            # Two products instead of the four of an eigenframe.
            return (self.curvature.matmul(v) * self.share).add_(v, alpha=self.floor)
        return self.total.matmul(v)

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        kind, tensors = self.curvature.tensors()
        numbers = {role: torch.tensor(getattr(self, role), dtype=torch.float64) for role in ("share", "floor")}
        return FLOORED + kind, tensors | numbers

    def trace(self) -> Float[Tensor, "*batch"]:
        if isinstance(self.curvature, Kronecker):
            return self.share * self.curvature.trace() + self.floor * self.size
        return self.total.trace()

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return self.total.dense()

    def diagonal_in(
        self, left: Float[Tensor, "*b out out"], right: Float[Tensor, "*b inp inp"]
    ) -> Float[Tensor, "*batch out inp"]:
        if isinstance(self.curvature, Kronecker):
            floor = scaled_identity(self.floor, self.shape).to(self.device).diagonal_in(left, right)
            return self.share * self.curvature.diagonal_in(left, right) + floor
        return self.total.diagonal_in(left, right)

    def jittered(self, relative: float) -> Matrix:
        return self.total.jittered(relative)

    def _plus(self, other: Matrix) -> Matrix:
        if isinstance(other, ScaledIdentity) and not other.batch:
            return FlooredMatrix(self.curvature, self.share, self.floor + float(other.scale))
        return self.total + (other.total if isinstance(other, FlooredMatrix) else other)

    def __mul__(self, scalar: float | Tensor) -> Matrix:
        if isinstance(scalar, Tensor) and scalar.ndim:
            return self.total * scalar
        return FlooredMatrix(self.curvature, self.share * float(scalar), self.floor * float(scalar))


@dataclass(frozen=True, eq=False)
class LeadingDirections:
    """A precision's own values on the input directions of most curvature, and their mean on all others.

    The curvature of a layer lies in few directions, hundreds of times above the rest. The diagonal does not see them: weights
    that change together may cost thousands of times what it says. A product costs O(out·(out + inp)·k) for k directions.
    """

    left: Float[Tensor, "out out"]
    right: Float[Tensor, "inp k"]
    values: Float[Tensor, "out k"]
    rest: Float[Tensor, ""]

    def power(self, exponent: float, least: float, g: Float[Tensor, "out inp"]) -> Float[Tensor, "out inp"]:
        """A power of the precision, no eigenvalue below `least`, times a matrix of weights."""
        rest = float(self.rest.clamp_min(least) ** exponent)
        more = (self.values.clamp_min(least) ** exponent - rest).to(g)
        return rest * g + (self.left @ ((self.left.mT @ (g @ self.right)) * more)) @ self.right.mT


def leading(precision: Matrix, like: Tensor, count: int = LEADING) -> LeadingDirections | None:
    """The leading part of a precision whose eigenvectors are known; None where they would have to be computed."""
    share, floor, frame = 1.0, 0.0, precision
    if isinstance(precision, FlooredMatrix):
        share, floor, frame = precision.share, precision.floor, precision.kept
    if not (isinstance(frame, JointEigen) and frame.is_orthogonal):
        return None
    values = share * frame.values.double() + floor
    order = values.mean(0).argsort(descending=True)
    first, others = order[:count], order[count:]
    rest = values[:, others].mean() if len(others) else values.mean()
    return LeadingDirections(frame.left.matrix.to(like), frame.right.matrix[:, first].to(like), values[:, first], rest)
