"""Predictions with uncertainty, sampled or linearised, and measures of how good they are."""

from posterity.predictive.metrics import (
    Reliability,
    Scores,
    consistency,
    ood_auroc,
    reliability,
    score,
    selective_accuracy,
)
from posterity.predictive.predict import predict
from posterity.predictive.prediction import Prediction

__all__ = [
    "Prediction",
    "Reliability",
    "Scores",
    "consistency",
    "ood_auroc",
    "predict",
    "reliability",
    "score",
    "selective_accuracy",
]
