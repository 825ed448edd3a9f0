"""The two surfaces averaged over seeds, where each is least, and how far apart that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from posterity_studies.declaration import Record

Surface = list[list[float]]


@dataclass(frozen=True)
class Optimum:
    alpha: float
    beta: float
    bound: float


def axes(records: Sequence[Record]) -> tuple[list[float], list[float]]:
    return records[0].arguments["alphas"], records[0].arguments["betas"]


def mean_surface(records: Sequence[Record], which: str) -> Surface:
    alphas, betas = axes(records)
    return [
        [statistics.mean(r.values[which][i][j] for r in records) for j in range(len(betas))] for i in range(len(alphas))
    ]


def optimum(record: Record, which: str) -> Optimum:
    """The least value of one seed's surface. On a plateau, the point with α and β nearest to one."""
    alphas, betas = record.arguments["alphas"], record.arguments["betas"]
    points = [Optimum(a, b, record.values[which][i][j]) for i, a in enumerate(alphas) for j, b in enumerate(betas)]
    return min(points, key=lambda p: (p.bound, math.log(p.alpha) ** 2 + math.log(p.beta) ** 2))


def true_at(record: Record, where: Optimum) -> float:
    alphas, betas = record.arguments["alphas"], record.arguments["betas"]
    value: float = record.values["true"][alphas.index(where.alpha)][betas.index(where.beta)]
    return value


def distance(a: Optimum, b: Optimum) -> float:
    """In decades of α and β."""
    return math.hypot(math.log10(a.alpha / b.alpha), math.log10(a.beta / b.beta))
