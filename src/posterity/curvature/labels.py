"""Whose labels the Fisher information is taken over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from posterity.curvature.likelihoods import Categorical, Likelihood


@dataclass(frozen=True)
class Labels(ABC):
    """A choice of labels, as the vectors that are sent back through the network."""

    @abstractmethod
    def residuals(
        self, likelihood: Likelihood, outputs: Tensor, targets: Tensor, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, bool]]:
        """Vectors r over the outputs with E Σ r rᵀ = the Fisher information of each example's outputs.

        Each comes with whether it is the last one.
        """


@dataclass(frozen=True)
class Sampled(Labels):
    """n labels drawn from the model for each example: unbiased for every n, less noise with more (averaged, not summed)."""

    n: int = 1

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"Sampled(n) needs n of at least 1, not {self.n}")

    def residuals(
        self, likelihood: Likelihood, outputs: Tensor, targets: Tensor, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, bool]]:
        for i in range(self.n):
            yield likelihood.sampled_residual(outputs, targets, generator) / self.n**0.5, i == self.n - 1


@dataclass(frozen=True)
class Exact(Labels):
    """The expectation over the model's labels, in closed form: as many backward passes as the outputs have dimensions."""

    def residuals(
        self, likelihood: Likelihood, outputs: Tensor, targets: Tensor, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, bool]]:
        columns = likelihood.fisher_columns(outputs, targets)
        for i, column in enumerate(columns):
            yield column, i == len(columns) - 1


@dataclass(frozen=True)
class Empirical(Labels):
    """The labels of the data: the "empirical Fisher", cheap and biased."""

    def residuals(
        self, likelihood: Likelihood, outputs: Tensor, targets: Tensor, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, bool]]:
        yield likelihood.residual(outputs, targets), True


@dataclass(frozen=True)
class Automatic(Labels):
    """Exact where that takes one backward pass (one output, two classes), one sampled label where it takes more."""

    def residuals(
        self, likelihood: Likelihood, outputs: Tensor, targets: Tensor, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, bool]]:
        by_example = outputs[0].numel() if len(outputs) else 0
        classes = isinstance(likelihood, Categorical)
        one_pass = outputs.ndim == 2 and by_example == 2 if classes else by_example == 1
        chosen: Labels = Exact() if one_pass else Sampled(1)
        yield from chosen.residuals(likelihood, outputs, targets, generator)
