"""Curves over the number of images, ours and the paper's, and how many images a curve needs to reach a level."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from posterity_studies.declaration import Record
from posterity_studies.intervals import interval

Curve = Mapping[int, float]
"""Accuracy in per cent by images per class."""


OURS, EXACT = "shrunk 0.3 1e-05 0.1", "free 1e-05 1e-05"
PAIR, WARM_PAIR = "joined 0.1 1e-05 1e-05", "joined 0.1 1e-05 0.01"
SETTINGS = {
    OURS: "factors shrunk by 30 %, τ = 0.1",
    "shrunk 0.3 1e-05 0.01": "factors shrunk by 30 %, τ = 1e-2",
    "shrunk 0.5 1e-05 0.1": "factors shrunk by half, τ = 0.1",
    "shrunk 0.1 1e-05 0.01": "factors shrunk by 10 %, τ = 1e-2",
    PAIR: "one pair, jitter 10 %, τ = 1e-5",
    WARM_PAIR: "one pair, jitter 10 %, τ = 1e-2",
    EXACT: "exact sum, τ = 1e-5",
    "free 1e-05 1e-06": "exact sum, τ = 1e-6",
    "pinned 1e-05 0.001": "dead units left alone, τ = 1e-3",
    "pinned 1e-05 0.0001": "dead units left alone, τ = 1e-4",
    "map": "the mode alone (τ → 0)",
    "linearised": "linearised, τ = 1",
}
"""Ways to draw, at γ = 1e-5, by their keys in the results."""


def published() -> dict[str, dict[str, dict[str, float]]]:
    """The paper's Figures 2b and 7, as its plots have them."""
    found: dict[str, dict[str, dict[str, float]]] = json.loads(
        files("posterity_studies.small_data").joinpath("paper.json").read_text()
    )
    return found


def paper_curve(kind: str) -> dict[int, float]:
    return {int(n): value for n, value in published()["figure 2b"][kind].items()}


def plain(records: Sequence[Record]) -> list[Record]:
    """Cells in our units, not one of the variants."""
    return [r for r in records if r.arguments["weight"] == 1 and r.arguments["pull"] == 1]


def samples(records: Sequence[Record], key: str, **wanted: Any) -> list[float]:
    """One value a seed: what two cells of a seed both tell (the mode's accuracy) counts once."""
    found = {
        r.arguments["seed"]: r.values[key]
        for r in records
        if key in r.values and all(r.arguments[name] == v for name, v in wanted.items())
    }
    return list(found.values())


def curve(records: Sequence[Record], kind: str, key: str) -> dict[int, tuple[float, float]]:
    """Mean and 95 % half-width by images per class."""
    here = plain(records)
    sizes = sorted({r.arguments["shots"] for r in here if r.arguments["prior"] == kind})
    found = {n: samples(here, key, prior=kind, shots=n) for n in sizes}
    return {n: interval(values) for n, values in found.items() if values}


def needed(accuracy: Curve, level: float) -> float:
    """Images per class at which a curve first reaches a level, between sizes by a straight line over log n; ∞ if never."""
    before: tuple[int, float] | None = None
    for n, value in sorted(accuracy.items()):
        if value >= level:
            if before is None:
                return float(n)
            share = (level - before[1]) / (value - before[1])
            return math.exp(math.log(before[0]) + share * math.log(n / before[0]))
        before = (n, value)
    return math.inf


def factor(learned: Curve, other: Curve, level: float) -> float:
    """How many times fewer images the learned prior needs; NaN where neither curve gets there."""
    ours, theirs = needed(learned, level), needed(other, level)
    return math.nan if math.isinf(ours) and math.isinf(theirs) else theirs / ours
