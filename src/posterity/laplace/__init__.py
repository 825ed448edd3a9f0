"""Prior, network and data become the posterior: MAP training, and Bayes' rule with curvature."""

from posterity.laplace.checkpoint import Epoch
from posterity.laplace.evidence import log_evidence, relative_spectrum, tune_strength
from posterity.laplace.isotropic import fitted, isotropic
from posterity.laplace.objective import PriorPenalty
from posterity.laplace.train import History, train
from posterity.laplace.update import Scales, update

__all__ = [
    "Epoch",
    "History",
    "PriorPenalty",
    "Scales",
    "fitted",
    "isotropic",
    "log_evidence",
    "relative_spectrum",
    "train",
    "tune_strength",
    "update",
]
