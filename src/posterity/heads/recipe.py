"""The numbers that a head is made with, and where they were settled."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log2, log10


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
    names: float = 0.5
    """The pseudo-count of names of the likeliest size; other sizes have less, by their octaves from it."""
    bias: float = 0.01
    """The precision of a bias: weak, so that a shift of the inputs changes nothing."""
    tolerance: float = 1e-4
    """How far a summed loss may be above its minimum, in nats an example."""
    budget: float = 6e10
    """Products of numbers that refits may take; beyond it there are fewer strengths and fewer folds."""

    def count_of_size(self, size: float) -> float:
        """The pseudo-count of a size of the names' means: 4 is the likeliest."""
        return self.names * exp(-0.5 * log2(size / 4) ** 2)

    def log_temperature(self, strength: float) -> float:
        """The belief's centre for a softmax head: strong priors leave logits too small."""
        return -0.222 * max(0.0, log10(strength) + 3) * log(10)

    def log_temperature_of_discriminant(self, shrinkage: float) -> float:
        """At a shrinkage, where nothing could be left out."""
        return 2.65 - 1.9 * shrinkage
