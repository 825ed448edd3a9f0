"""Means over seeds with their intervals, and differences paired by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""97.5 % quantiles of Student's t by the number of values."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of the 95 % interval by Student's t (NaN for a single value)."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, math.nan
    return mean, STUDENT.get(len(values), 1.96) * statistics.stdev(values) / math.sqrt(len(values))


def paired(ours: Mapping[int, float], base: Mapping[int, float]) -> tuple[float, float]:
    """The interval of ours − base over the seeds that both have; NaN where they share none."""
    both = sorted(ours.keys() & base.keys())
    return interval([ours[s] - base[s] for s in both]) if both else (math.nan, math.nan)


def shown(mean: float, half: float, digits: int = 1, sign: bool = False) -> str:
    """ "87.3 ± 1.2", or without the interval where there is none."""
    if math.isnan(mean):
        return "–"
    text = f"{mean:+.{digits}f}" if sign else f"{mean:.{digits}f}"
    return text if math.isnan(half) else f"{text} ± {half:.{digits}f}"
