"""What a head for classes is: an average of linear maps of features, each at several temperatures."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.heads.belief import Belief
from posterity.heads.checks import checked_features
from posterity.heads.recipe import HeadCandidate
from posterity.heads.views import Axes, Kind, View
from posterity.kernel.stacking import Temperatures, mixed

CHUNK = 4096
"""Rows that are predicted at once."""


@dataclass(frozen=True, eq=False)
class HeadMember:
    """A candidate of the stack, with its weights on all features."""

    candidate: HeadCandidate
    weight: float
    temperatures: Temperatures
    rows: Float[Tensor, "d classes"]
    bias: Float[Tensor, " classes"]


@dataclass(frozen=True, eq=False)
class ClassHead:
    """Probabilities of classes from features. It holds no training example, but the axes that their features span."""

    views: dict[Kind, View]
    members: tuple[HeadMember, ...]
    shift: Float[Tensor, " classes"]
    """Logarithms of the classes' frequencies, which no temperature divides."""
    temperatures: Temperatures
    """Of the whole stack."""
    axes: Axes
    """Of the training rows at unit length."""
    precision: float
    """The prior's precision of a logit for an input of length one."""
    curvature: float
    """The mean second derivative of a training example's NLL by a logit."""

    @property
    def width(self) -> int:
        """The number of columns of the features."""
        return len(self.views["unit"].centre)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.shift)

    def log_probs(self, features: Tensor) -> Float[Tensor, "m classes"]:
        """The log probability of every class."""
        rows = checked_features(features, self.width)
        return torch.cat([self.log_probs_of(part) for part in rows.split(CHUNK)])

    def log_probs_of(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m classes"]:
        """Log probabilities of checked rows, all at once."""
        seen = {kind: view(rows) for kind, view in self.views.items()}
        parts = [(m.weight, m.temperatures(seen[m.candidate.view] @ m.rows + m.bias, self.shift)) for m in self.members]
        return self.temperatures(mixed(parts), torch.zeros_like(self.shift))

    @property
    def belief(self) -> Belief:
        """About a logit, the same for all classes."""
        view = self.views["unit"]
        return Belief(view, torch.zeros_like(view.centre), self.axes, 1 / self.precision, self.curvature)

    def curvatures(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m classes"]:
        """The second derivative of a label's expected NLL by each logit."""
        p = self.log_probs_of(rows).exp()
        return p * (1 - p)

    def weights(self) -> dict[HeadCandidate, float]:
        """How much each candidate counts."""
        return {m.candidate: m.weight for m in self.members}
