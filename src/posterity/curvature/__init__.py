"""From a network and data to one structured matrix per block."""

from typing import Any

from posterity.curvature.base import Estimator
from posterity.curvature.entries import Dense, Diagonal
from posterity.curvature.frames import EKFAC, GivenFrame, OwnFrame
from posterity.curvature.kfac import KFAC
from posterity.curvature.kfoc import KFOC
from posterity.curvature.likelihoods import (
    AutomaticLabels,
    Bernoulli,
    Categorical,
    EmpiricalLabels,
    ExactLabels,
    GaussianNoise,
    Labels,
    Likelihood,
    SampledLabels,
)
from posterity.curvature.sweep import Curvature, estimate
from posterity.deprecated import renamed

__all__ = [
    "EKFAC",
    "KFAC",
    "KFOC",
    "AutomaticLabels",
    "Bernoulli",
    "Categorical",
    "Curvature",
    "Dense",
    "Diagonal",
    "EmpiricalLabels",
    "Estimator",
    "ExactLabels",
    "GaussianNoise",
    "GivenFrame",
    "Labels",
    "Likelihood",
    "OwnFrame",
    "SampledLabels",
    "estimate",
]


def __getattr__(name: str) -> Any:
    return renamed("curvature", name)
