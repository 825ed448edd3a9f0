"""Where the two surfaces are least, how far apart that is, and the verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import interval, shown

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


def verdict(records: Sequence[Record]) -> Verdict:
    """Reproduced: on average within half a decade, or at a price below a percentage point. Partly: below five points."""
    apart = [distance(optimum(r, "approximate"), optimum(r, "true")) for r in records]
    price = [true_at(r, optimum(r, "approximate")) - optimum(r, "true").bound for r in records]
    above = [optimum(r, "approximate").bound - true_at(r, optimum(r, "approximate")) for r in records]
    why = (
        f"The two optima are {shown(*interval(apart), digits=2)} decades of α and β apart (the grid has half decades); "
        f"choosing by the approximation costs {shown(*interval(price), digits=4)} of true bound. The approximate value "
        f"lies {statistics.mean(above):.3f} above the true one."
    )
    close = statistics.mean(apart) <= 0.55 or statistics.mean(price) <= 0.01
    fair = statistics.mean(price) <= 0.05
    return Verdict(Outcome.reproduced if close else Outcome.partly if fair else Outcome.not_reproduced, why)
