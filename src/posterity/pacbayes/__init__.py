"""How far to trust a posterior: PAC-Bayes bounds, the approximate risk, scales of least bound, and certificates that hold."""

from typing import Any

from posterity.deprecated import renamed
from posterity.pacbayes.bounds import (
    binary_kl,
    catoni,
    catoni_best,
    clopper_pearson,
    klinv,
    lambda_bound,
    maurer,
    mcallester,
    quadratic,
)
from posterity.pacbayes.certificate import Certificate, Holdout
from posterity.pacbayes.certify import certify
from posterity.pacbayes.few import certify_few
from posterity.pacbayes.few_shot import sample_then_evaluate
from posterity.pacbayes.gibbs import gibbs_risk
from posterity.pacbayes.methods import FAMILY
from posterity.pacbayes.optimise import optimise_posterior
from posterity.pacbayes.recursive import recursive_certificate
from posterity.pacbayes.risk import Landscape
from posterity.pacbayes.tune import TunedScales, one_number, tune

__all__ = [
    "FAMILY",
    "Certificate",
    "Holdout",
    "Landscape",
    "TunedScales",
    "binary_kl",
    "catoni",
    "catoni_best",
    "certify",
    "certify_few",
    "clopper_pearson",
    "gibbs_risk",
    "klinv",
    "lambda_bound",
    "maurer",
    "mcallester",
    "one_number",
    "optimise_posterior",
    "quadratic",
    "recursive_certificate",
    "sample_then_evaluate",
    "tune",
]


def __getattr__(name: str) -> Any:
    return renamed("pacbayes", name)
