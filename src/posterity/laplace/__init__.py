"""Prior, network and data become the posterior: MAP training, and Bayes' rule with curvature."""

from posterity.laplace.evidence import log_evidence, relative_spectrum, tune_strength
from posterity.laplace.prior import PriorPenalty, fitted, isotropic
from posterity.laplace.run import Epoch
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
