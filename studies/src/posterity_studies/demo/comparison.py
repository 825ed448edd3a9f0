"""What the cells say together: means, and differences paired by seed with their 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from posterity_studies.declaration import Record

MEASURES = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE", "ood": "OOD AUROC"}
HIGHER_IS_BETTER = {"accuracy", "ood"}

# Student's t, 97.5 %, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95 % interval (Student's t)."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def interval(values: Sequence[float]) -> Interval:
    freedom = len(values) - 1
    half = STUDENT.get(freedom, 1.96) * stdev(values) / math.sqrt(len(values)) if freedom else math.nan
    return Interval(fmean(values), half)


def sizes(records: Sequence[Record]) -> list[int]:
    """Training images per class."""
    return sorted({r.arguments["per_class"] for r in records if r.arguments["experiment"] == "fits"})


def seeds(records: Sequence[Record]) -> int:
    return len({r.arguments["seed"] for r in records if r.arguments["experiment"] == "fits"})


def fits(records: Sequence[Record], method: str, per_class: int) -> list[Record]:
    """One method's cells at one size, by seed."""
    chosen = [
        r
        for r in records
        if (r.arguments["experiment"], r.arguments["method"], r.arguments["per_class"]) == ("fits", method, per_class)
    ]
    return sorted(chosen, key=lambda r: r.arguments["seed"])


def level(records: Sequence[Record], method: str, per_class: int, measure: str) -> Interval:
    return interval([r.values[measure] for r in fits(records, method, per_class)])


def difference(records: Sequence[Record], rival: str, per_class: int, measure: str) -> Interval:
    """The rival minus the learned prior, seed by seed: the same images, so what they share cancels."""
    ours = {r.arguments["seed"]: r.values[measure] for r in fits(records, "learned", per_class)}
    theirs = {r.arguments["seed"]: r.values[measure] for r in fits(records, rival, per_class)}
    return interval([theirs[seed] - ours[seed] for seed in ours if seed in theirs])


def winner(gap: Interval, measure: str) -> int:
    """1 where the learned prior is better beyond the interval, −1 where the rival is, 0 where neither can be said."""
    if not abs(gap.mean) > gap.half:
        return 0
    return -1 if (gap.mean > 0) == (measure in HIGHER_IS_BETTER) else 1
