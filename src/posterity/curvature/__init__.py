"""From a network and data to one structured matrix per block."""

from posterity.curvature.base import Estimator
from posterity.curvature.dense import Dense
from posterity.curvature.diagonal import Diagonal
from posterity.curvature.framed import Framed
from posterity.curvature.in_frame import InFrame
from posterity.curvature.kfac import EKFAC, KFAC
from posterity.curvature.kfoc import KFOC
from posterity.curvature.likelihoods import (
    Automatic,
    Bernoulli,
    Categorical,
    Empirical,
    Exact,
    GaussianNoise,
    Labels,
    Likelihood,
    Sampled,
)
from posterity.curvature.sweep import Curvature, estimate

__all__ = [
    "EKFAC",
    "KFAC",
    "KFOC",
    "Automatic",
    "Bernoulli",
    "Categorical",
    "Curvature",
    "Dense",
    "Diagonal",
    "Empirical",
    "Estimator",
    "Exact",
    "Framed",
    "GaussianNoise",
    "InFrame",
    "Labels",
    "Likelihood",
    "Sampled",
    "estimate",
]
