"""Posterity: a posterior becomes a prior.

Structured Gaussians over network weights, learned on one task and handed down to the next.
"""

from posterity.curvature import (
    EKFAC,
    KFAC,
    KFOC,
    Bernoulli,
    Categorical,
    Curvature,
    Dense,
    Diagonal,
    Empirical,
    Exact,
    GaussianNoise,
    Sampled,
    estimate,
)
from posterity.errors import PosterityError

__version__ = "0.1.0.dev0"

__all__ = [
    "EKFAC",
    "KFAC",
    "KFOC",
    "Bernoulli",
    "Categorical",
    "Curvature",
    "Dense",
    "Diagonal",
    "Empirical",
    "Exact",
    "GaussianNoise",
    "PosterityError",
    "Sampled",
    "estimate",
]
