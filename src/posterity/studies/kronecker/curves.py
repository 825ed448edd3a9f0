"""From cells to curves: means with 95 % intervals along one axis, pooled over all others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from posterity.studies.declaration import Record

NORMAL_95 = 1.959964
"""Half the width of a 95 % interval, in standard errors."""


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation of `count` numbers."""

    mean: float
    std: float
    count: int

    @property
    def standard_error(self) -> float:
        return self.std / math.sqrt(self.count)

    @property
    def low(self) -> float:
        return self.mean - NORMAL_95 * self.standard_error

    @property
    def high(self) -> float:
        return self.mean + NORMAL_95 * self.standard_error


def pool(samples: Sequence[Sample]) -> Sample:
    """The sample made of all of these together."""
    count = sum(s.count for s in samples)
    mean = sum(s.count * s.mean for s in samples) / count
    squares = sum((s.count - 1) * s.std**2 + s.count * (s.mean - mean) ** 2 for s in samples)
    return Sample(mean, math.sqrt(squares / (count - 1)), count)


def overall(records: Sequence[Record], method: str) -> Sample:
    """The error of L ⊗ R + γI over all sizes, scales, weight decays and seeds."""
    return pool([sample for _, sample in _decay_samples(records, method)])


def curve(records: Sequence[Record], panel: str, method: str) -> dict[float, Sample]:
    """The error along one panel of Figure 3: `size`, `scale`, `gamma` or `terms`."""
    if panel == "terms":
        found = ((r.arguments["terms"], _sample(r, r.values[method])) for r in of(records, "terms"))
        return dict(sorted(found))
    return _grouped(_decay_samples(records, method), lambda point: float(point[panel]))


def iterations(records: Sequence[Record], start: str) -> list[Sample]:
    """The error before the first iteration and after each one, from `normal` or `positive` starts."""
    return [
        Sample(mean, std, r.arguments["seeds"])
        for r in of(records, "iterations")
        for mean, std in zip(r.values[start]["mean"], r.values[start]["std"], strict=True)
    ]


def of(records: Sequence[Record], experiment: str) -> list[Record]:
    return [r for r in records if r.arguments["experiment"] == experiment]


def _decay_samples(records: Sequence[Record], method: str) -> Iterator[tuple[dict[str, Any], Sample]]:
    for r in of(records, "decay"):
        values = r.values[method]
        for gamma, mean, std in zip(r.arguments["gammas"], values["mean"], values["std"], strict=True):
            yield {**r.arguments, "gamma": gamma}, Sample(mean, std, r.arguments["seeds"])


def _sample(record: Record, summary: Any) -> Sample:
    return Sample(summary["mean"], summary["std"], record.arguments["seeds"])


def _grouped(
    samples: Iterator[tuple[dict[str, Any], Sample]], by: Callable[[dict[str, Any]], float]
) -> dict[float, Sample]:
    groups: dict[float, list[Sample]] = {}
    for point, sample in samples:
        groups.setdefault(by(point), []).append(sample)
    return {x: pool(groups[x]) for x in sorted(groups)}
