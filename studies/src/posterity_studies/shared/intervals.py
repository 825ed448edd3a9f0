"""Means over seeds with their 95 % intervals, and differences paired by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

LABEL = "± is half the width of the 95 % interval of the mean (Student's t, by the number of seeds or splits)"
"""What "±" means wherever a table does not say otherwise."""


class Interval(NamedTuple):
    """A mean and half the width of its 95 % interval; NaN where there are too few values for either."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def interval(values: Sequence[float]) -> Interval:
    """The mean of some seeds' values and its interval by Student's t. A single value has no interval."""
    if not values:
        return Interval(math.nan, math.nan)
    spread = statistics.stdev(values) if len(values) > 1 else math.nan
    return Interval(statistics.mean(values), half_width(spread, len(values)))


def paired(ours: Mapping[int, float], base: Mapping[int, float]) -> Interval:
    """The interval of ours − base over the seeds that both have: what the seeds share cancels."""
    return interval([ours[s] - base[s] for s in sorted(ours.keys() & base.keys())])


def half_width(spread: float, count: int) -> float:
    """Half the width of the 95 % interval of a mean, from the standard deviation of `count` values."""
    return student(count) * spread / math.sqrt(count) if count > 1 else math.nan


def shown(mean: float, half: float, digits: int = 1, sign: bool = False, thousands: bool = False) -> str:
    """ "87.3 ± 1.2"; without the interval where there is none, "–" where there is nothing."""
    if math.isnan(mean):
        return "–"
    form = f"{',' if thousands else ''}.{digits}f"
    text = f"{mean:{'+' if sign else ''}{form}}"
    return text if math.isnan(half) else f"{text} ± {half:{form}}"


@cache
def student(count: int) -> float:
    """The 97.5 % quantile of Student's t for a mean of `count` values, to four digits; beyond 1,000 that of 1,000."""
    freedom = min(count, 1000) - 1
    low, high = 1.9, 13.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return float(f"{high:.4g}")


def _within(t: float, freedom: int) -> float:
    """P(|T| < t), by the finite series that there is for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
