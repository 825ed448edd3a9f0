"""How good predictions are: accuracy, NLL, calibration, unknown inputs, and whether a posterior fits its training data."""

from posterity.predictive.metrics import (
    Reliability,
    Scores,
    consistency,
    ood_auroc,
    reliability,
    score,
    selective_accuracy,
)

__all__ = ["Reliability", "Scores", "consistency", "ood_auroc", "reliability", "score", "selective_accuracy"]
