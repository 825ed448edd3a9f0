"""From a network and data to one structured matrix per block."""

from posterity.curvature.base import Estimator
from posterity.curvature.batches import Batch, Data, batches
from posterity.curvature.dense import Dense
from posterity.curvature.diagonal import Diagonal
from posterity.curvature.kfac import KFAC
from posterity.curvature.kfac_eigen import EKFAC
from posterity.curvature.kfoc import KFOC
from posterity.curvature.labels import Automatic, Empirical, Exact, Labels, Sampled
from posterity.curvature.likelihoods import Bernoulli, Categorical, GaussianNoise, Likelihood
from posterity.curvature.record import Curvature
from posterity.curvature.sweep import estimate

__all__ = [
    "EKFAC",
    "KFAC",
    "KFOC",
    "Automatic",
    "Batch",
    "Bernoulli",
    "Categorical",
    "Curvature",
    "Data",
    "Dense",
    "Diagonal",
    "Empirical",
    "Estimator",
    "Exact",
    "GaussianNoise",
    "Labels",
    "Likelihood",
    "Sampled",
    "batches",
    "estimate",
]
