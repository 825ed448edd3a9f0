"""The verbs that do several steps: learn a task, adapt to one, and the short ways to a posterior and to a prior."""

from posterity.workflow.file import load
from posterity.workflow.fit import Fit
from posterity.workflow.fold_certificate import Folds, certify_folds
from posterity.workflow.from_trained import posterior, prior
from posterity.workflow.head import head
from posterity.workflow.learn import adapt, learn
from posterity.workflow.split_prior import RefinedPrior, split_prior

__all__ = [
    "Fit",
    "Folds",
    "RefinedPrior",
    "adapt",
    "certify_folds",
    "head",
    "learn",
    "load",
    "posterior",
    "prior",
    "split_prior",
]
