"""Posterity: a posterior becomes a prior.

Structured Gaussians over network weights, learned on one task and handed down to the next:

    prior = pt.learn(model, source).posterior            # isotropic → learned prior
    fit = pt.learn(model, target, prior=prior)           # learned prior → posterior
    pt.predict(fit.model, fit.posterior, x)              # calibrated probabilities
"""

from typing import TYPE_CHECKING, Any

from posterity import plot, zoo
from posterity.curvature import (
    EKFAC,
    KFAC,
    KFOC,
    Automatic,
    Bernoulli,
    Categorical,
    Curvature,
    Dense,
    Diagonal,
    Empirical,
    Exact,
    Framed,
    GaussianNoise,
    InFrame,
    Sampled,
    estimate,
)
from posterity.errors import PosterityError
from posterity.gaussian import Card, Gaussian
from posterity.kernel import Laplace, Variational
from posterity.laplace import History, PriorPenalty, Scales, isotropic, log_evidence, train, tune_strength, update
from posterity.pacbayes import (
    Certificate,
    Tuned,
    certify,
    gibbs_risk,
    optimise_posterior,
    recursive_certificate,
    sample_then_evaluate,
    tune,
)
from posterity.predictive import (
    Prediction,
    Scores,
    consistency,
    ood_auroc,
    predict,
    reliability,
    score,
    selective_accuracy,
)
from posterity.progressive import BPNN, Stream, Task
from posterity.version import __version__
from posterity.workflow import Fit, adapt, certify_folds, learn, load, posterior, prior, split_prior
from posterity.wrappers import from_laplace, to_laplace

if TYPE_CHECKING:
    from posterity.wrappers import PosteriorClassifier, PosteriorRegressor

__all__ = [
    "BPNN",
    "EKFAC",
    "KFAC",
    "KFOC",
    "Automatic",
    "Bernoulli",
    "Card",
    "Categorical",
    "Certificate",
    "Curvature",
    "Dense",
    "Diagonal",
    "Empirical",
    "Exact",
    "Fit",
    "Framed",
    "Gaussian",
    "GaussianNoise",
    "History",
    "InFrame",
    "Laplace",
    "PosteriorClassifier",
    "PosteriorRegressor",
    "PosterityError",
    "Prediction",
    "PriorPenalty",
    "Sampled",
    "Scales",
    "Scores",
    "Stream",
    "Task",
    "Tuned",
    "Variational",
    "__version__",
    "adapt",
    "certify",
    "certify_folds",
    "consistency",
    "estimate",
    "from_laplace",
    "gibbs_risk",
    "isotropic",
    "learn",
    "load",
    "log_evidence",
    "ood_auroc",
    "optimise_posterior",
    "plot",
    "posterior",
    "predict",
    "prior",
    "recursive_certificate",
    "reliability",
    "sample_then_evaluate",
    "score",
    "selective_accuracy",
    "split_prior",
    "to_laplace",
    "train",
    "tune",
    "tune_strength",
    "update",
    "zoo",
]


MOVED = {"PNN": "posterity_studies.shared.continual (pip install posterity-studies)"}
"""Names that were here in the version before, and where they are now."""


def __getattr__(name: str) -> Any:
    # scikit-learn is optional, and takes longer to import than all of this: its estimators come when they are asked for.
    if name in ("PosteriorClassifier", "PosteriorRegressor"):
        from posterity import wrappers

        return getattr(wrappers, name)
    moved = f": it is in {MOVED[name]}" if name in MOVED else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{moved}")
