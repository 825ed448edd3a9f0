"""Split-conformal prediction: sets that hold the truth as often as promised, from scores of examples that were held out."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def threshold(scores: Numbers, coverage: float) -> float:
    """The score that a new example stays below with probability `coverage`, if it is exchangeable with those given.

    The ⌈(n + 1) · coverage⌉-th smallest of n scores: the truth is then covered with a probability of at least `coverage` and,
    where no scores are equal, at most coverage + 1/(n + 1). Infinite where n is too small to promise anything.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"a coverage lies between 0 and 1, not {coverage}")
    rank = math.ceil((len(scores) + 1) * coverage - 1e-12)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def class_scores(probabilities: Numbers, labels: NDArray[np.intp]) -> Numbers:
    """1 − the probability of the true class, of each example."""
    return 1 - probabilities[np.arange(len(labels)), labels]


def class_sets(probabilities: Numbers, limit: float) -> NDArray[np.bool_]:
    """Which classes are in each example's set: those with a score up to the limit, and always the most probable one."""
    chosen = 1 - probabilities <= limit
    chosen[np.arange(len(chosen)), probabilities.argmax(1)] = True
    return chosen


def interval_scores(mean: Numbers, deviation: Numbers, targets: Numbers) -> Numbers:
    """How many predictive standard deviations each target is away from its mean."""
    return np.abs(targets - mean) / deviation


def intervals(mean: Numbers, deviation: Numbers, limit: float) -> Numbers:
    """[n, 2]: from lower to upper end, wider where the posterior is less sure."""
    return np.stack((mean - limit * deviation, mean + limit * deviation), 1)
