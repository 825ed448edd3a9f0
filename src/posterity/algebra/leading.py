"""A large precision by its leading eigenvectors, for products that have to be cheaper than the precision's own."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from posterity.algebra.base import Matrix
from posterity.algebra.diagonal import JointEigen
from posterity.algebra.floored import FlooredMatrix

LEADING = 64
"""Eigenvectors of the inputs' side. Beyond them the curvature of ResNet-50's layers is within a hundredth of its largest."""


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
    share, floor = (precision.share, precision.floor) if isinstance(precision, FlooredMatrix) else (1.0, 0.0)
    frame = precision.kept if isinstance(precision, FlooredMatrix) else precision
    if not (isinstance(frame, JointEigen) and frame.is_orthogonal):
        return None
    values = share * frame.values.double() + floor
    order = values.mean(0).argsort(descending=True)
    first, others = order[:count], order[count:]
    rest = values[:, others].mean() if len(others) else values.mean()
    return LeadingDirections(frame.left.matrix.to(like), frame.right.matrix[:, first].to(like), values[:, first], rest)
