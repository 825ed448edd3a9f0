"""Posterity: a posterior becomes a prior.

Structured Gaussians over network weights, learned on one task and handed down to the next:

    prior = pt.learn(model, source).posterior            # isotropic → learned prior
    fit = pt.learn(model, target, prior)                 # learned prior → posterior
    fit.predict(x).probs                                 # calibrated probabilities
"""

from typing import TYPE_CHECKING, Any

from posterity import curvature as curvature
from posterity import gaussian as gaussian
from posterity import kernel as kernel
from posterity import laplace as laplace
from posterity import metrics as metrics
from posterity import pacbayes as pacbayes
from posterity import plot as plot
from posterity import progressive as progressive
from posterity import wrappers as wrappers
from posterity import zoo as zoo
from posterity.curvature import EKFAC, KFAC, KFOC, Bernoulli, Categorical, Diagonal, GaussianNoise, estimate
from posterity.deprecated import moved
from posterity.errors import PosterityError
from posterity.gaussian import Gaussian
from posterity.heads import words
from posterity.laplace import Scales, isotropic, train, update
from posterity.pacbayes import Certificate, certify
from posterity.predictive import Prediction, predict
from posterity.progressive import BPNN, Task
from posterity.version import __version__
from posterity.workflow import Fit, adapt, certify_folds, head, learn, load, posterior, prior, split_prior

if TYPE_CHECKING:
    from posterity.wrappers import PosteriorClassifier, PosteriorRegressor

# At most 40 names, in the order in which a reader meets them.
__all__ = [  # noqa: RUF022
    # verbs
    "learn",
    "adapt",
    "posterior",
    "prior",
    "head",
    "words",
    "predict",
    "load",
    # verbs: one step at a time
    "isotropic",
    "train",
    "estimate",
    "update",
    # verbs: guaranteed error bounds
    "certify",
    "certify_folds",
    "split_prior",
    # values
    "Certificate",
    "Fit",
    "Gaussian",
    "PosterityError",
    "Prediction",
    "Scales",
    "Task",
    # learners
    "BPNN",
    "PosteriorClassifier",
    "PosteriorRegressor",
    # estimators of curvature
    "Diagonal",
    "EKFAC",
    "KFAC",
    "KFOC",
    # likelihoods
    "Bernoulli",
    "Categorical",
    "GaussianNoise",
    # parts with names of their own
    "curvature",
    "metrics",
    "pacbayes",
    "plot",
    "zoo",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is optional, and takes longer to import than all of this: its estimators come when they are asked for.
    if name in ("PosteriorClassifier", "PosteriorRegressor"):
        return getattr(wrappers, name)
    return moved(name)
