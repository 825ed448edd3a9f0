"""Bayesian prototypes: a Gaussian a class in a fixed feature space, each mean with a conjugate prior.

In the manner of Kessler et al. (arXiv 2301.01828): classes come one after the other and nothing is forgotten, since no class
changes another's prototype. They also learn the embedding, with a memory of past examples; here it is the source's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

WIDTH = 100.0
"""Of the prior of a class's mean, in units of the noise: classes lie far apart."""


@dataclass(frozen=True)
class Prototypes:
    """Sums by class of features seen so far."""

    count: Int[Tensor, " classes"]
    total: Float[Tensor, "classes d"]
    squares: Float[Tensor, ""]
    """Sum of squared distances of features from their class's mean."""

    @classmethod
    def none(cls, classes: int, d: int) -> Prototypes:
        return cls(torch.zeros(classes, dtype=torch.int64), torch.zeros(classes, d).double(), torch.zeros(()).double())

    def after(self, features: Float[Tensor, "n d"], y: Int[Tensor, " n"]) -> Prototypes:
        """With a task's examples; its classes are new ones."""
        features = features.double()
        count = self.count.clone().index_add_(0, y, torch.ones_like(y))
        total = self.total.clone().index_add_(0, y, features)
        means = (total / count.clamp_min(1)[:, None])[y]
        return Prototypes(count, total, self.squares + (features - means).square().sum())

    @property
    def noise(self) -> float:
        """The variance of a feature around its class's mean, one for all classes and directions."""
        freedom = int((self.count - (self.count > 0).long()).sum()) * self.total.shape[1]
        return float(self.squares) / max(1, freedom)

    def probabilities(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n classes"]:
        """Over all classes seen so far, alike beforehand: the predictive density of each."""
        precision = 1 / WIDTH + self.count
        centre = self.total.sum(0) / self.count.sum()
        means = (self.total + centre / WIDTH) / precision[:, None]
        variance = self.noise * (1 + 1 / precision)
        distance = (features.double()[:, None] - means).square().sum(-1)
        logs = -distance / (2 * variance) - 0.5 * self.total.shape[1] * variance.log()
        return logs.masked_fill(self.count == 0, -math.inf).softmax(-1)
