"""How far to trust a posterior: PAC-Bayes bounds, the approximate risk, and scales of least bound."""

from posterity.pacbayes.bounds import (
    binary_kl,
    catoni,
    catoni_best,
    klinv,
    lambda_bound,
    maurer,
    mcallester,
    quadratic,
)
from posterity.pacbayes.risk import Landscape
from posterity.pacbayes.tune import Tuned, one_number, per_layer, tune

__all__ = [
    "Landscape",
    "Tuned",
    "binary_kl",
    "catoni",
    "catoni_best",
    "klinv",
    "lambda_bound",
    "maurer",
    "mcallester",
    "one_number",
    "per_layer",
    "quadratic",
    "tune",
]
