"""What a model of a table's inputs is: log probabilities of classes or a normal number, and what it says of left-out examples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


class ClassModel(ABC):
    """Probabilities of classes from rows of numbers."""

    @abstractmethod
    def logits(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m classes"]:
        """Log probabilities of the classes."""


class NumberModel(ABC):
    """A normal number from rows of numbers."""

    @abstractmethod
    def numbers(self, x: Float[Tensor, "m d"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"], Float[Tensor, " m"]]:
        """The mean, the epistemic variance (which more examples would reduce) and the variance of the noise."""


@dataclass(frozen=True, eq=False)
class TableFit:
    """A model of all examples, and what it says of each left-out one without its fold; NaN where one was never left out."""

    model: ClassModel | NumberModel
    scores: Float[Tensor, " n"]
    """Log probabilities of the targets."""
    moments: Float[Tensor, "2 n"] | None = None
    """Means and variances of numbers."""

    @staticmethod
    def of_numbers(
        model: NumberModel, y: Float[Tensor, " n"], judged: Int[Tensor, " m"], found: tuple[Tensor, Tensor]
    ) -> TableFit:
        """From means and variances of the examples that were left out."""
        moments = torch.stack([placed(part, judged, len(y)) for part in found])
        return TableFit(model, log_density(y, *moments), moments)


def log_density(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """The log density of a normal number."""
    return -0.5 * ((y - mean).square() / variance + variance.log() + math.log(2 * math.pi))


def placed(scores: Float[Tensor, " m"], index: Int[Tensor, " m"], count: int) -> Float[Tensor, " n"]:
    """Scores of some examples among all, NaN elsewhere."""
    return torch.full((count,), torch.nan, dtype=torch.float64).index_put((index,), scores.double())
