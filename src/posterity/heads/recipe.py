"""What a head for classes is made of: its candidates, and the numbers they are fitted and believed with."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log2, log10
from typing import Literal

from posterity.heads.views import KINDS, Kind

Method = Literal["softmax", "discriminant", "frequencies"]


@dataclass(frozen=True)
class HeadCandidate:
    """One way to a head: a view, a method and its strength (or shrinkage), and the length of the names' prior mean.

    "frequencies" are those of the classes, whatever the features: the caution that a few columns ask for.
    """

    view: Kind
    method: Method
    strength: float
    size: float = 0.0


@dataclass(frozen=True)
class HeadRecipe:
    """Grids and beliefs. Inputs have a mean squared length of 1, so that none of these has a unit.

    Settled on the sets `SETTLING` of the study `heads` (none of them is reported).
    """

    strengths: tuple[float, ...] = (0.18, 0.0056)
    """Precisions of the weights' prior. A weaker one is added while the weakest has most of its view's weight."""
    weakest: float = 1e-6
    shrinkages: tuple[float, ...] = (0.1, 0.3, 0.6)
    """How far a discriminant's covariance is shrunk towards a multiple of the identity."""
    sizes: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
    """Lengths of the prior means that names give; a larger one is added while the largest has most of the names' weight."""
    spread: float = 0.35
    """Standard deviation of the belief about a logarithmic temperature."""
    wide: float = 0.3
    """The share of that belief that is 1.5 wide."""
    narrow: float = 0.2
    """The same for the temperature of the whole stack."""
    counts: tuple[float, float, float] = (0.5, 0.125, 0.05)
    """Pseudo-counts of candidates: a softmax on unit-length inputs, on standardised ones, a discriminant. Simple ones first."""
    alone: tuple[float, float] | None = (0.4, 0.3)
    """Where no label can be left out: weights of a softmax on standardised columns and of the frequencies, over that of one on
    unit-length inputs, for a spread over `usual` columns. Settled, set by set left out, on 67 sets that no study reports.
    None: by `counts` there too, for columns that another model made."""
    usual: float = 20.0
    power: float = 0.6
    """How much the weights on both sides change with the number of columns, in logarithms."""
    names: float = 0.5
    """The pseudo-count of names of the likeliest size; other sizes have less, by their octaves from it."""
    bias: float = 0.01
    """The precision of a bias: weak, so that a shift of the inputs changes nothing."""
    tolerance: float = 1e-4
    """How far a summed loss may be above its minimum, in nats an example."""
    budget: float = 6e10
    """Products of numbers that refits may take; beyond it there are fewer strengths and fewer folds."""

    def count(self, candidate: HeadCandidate) -> float:
        """Its pseudo-count in the stack. Of the sizes of names' means 4 is the likeliest."""
        if candidate.size:
            return self.names * exp(-0.5 * log2(candidate.size / 4) ** 2)
        return self.counts[2 if candidate.method == "discriminant" else KINDS.index(candidate.view)]

    def count_alone(self, candidate: HeadCandidate, columns: float) -> float:
        """Its weight where no label can be left out, by the number of columns that the rows are spread over.

        Embeddings spread over hundreds: directions say the class. A table's few columns may say nothing about it.
        """
        standardised, frequencies = self.alone or (0.0, 0.0)
        trust = (columns / self.usual) ** self.power
        if candidate.method == "frequencies":
            return frequencies / trust
        return trust if candidate.view == "unit" else standardised

    def log_temperature(self, candidate: HeadCandidate) -> float:
        """Where the belief about its logarithmic temperature has its centre: strong priors leave logits too small."""
        if candidate.method == "discriminant":
            return 2.65 - 1.9 * candidate.strength
        return -0.222 * (log10(max(candidate.strength, 1e-3)) + 3) * log(10)
