"""Curves over the number of images, ours and the paper's, how many images a curve needs to reach a level; the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared import published
from posterity_studies.shared.intervals import interval

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


def paper_curve(kind: str) -> dict[int, float]:
    """The paper's Figure 2b, as its plot has it."""
    return {int(n): value for n, value in published.curve("figure 2b", kind).items()}


def standard(records: Sequence[Record]) -> list[Record]:
    """Cells in our units, without the variants."""
    return [r for r in records if r.arguments["weight"] == 1 and r.arguments["pull"] == 1]


def samples(records: Sequence[Record], key: str, **wanted: Any) -> list[float]:
    """One value a seed: what two cells of a seed both hold (the mode's accuracy) counts once."""
    found = {
        r.arguments["seed"]: r.values[key]
        for r in records
        if key in r.values and all(r.arguments[name] == v for name, v in wanted.items())
    }
    return list(found.values())


def curve(records: Sequence[Record], kind: str, key: str) -> dict[int, tuple[float, float]]:
    """Mean and 95 % half-width by images per class."""
    here = standard(records)
    sizes = sorted({r.arguments["shots"] for r in here if r.arguments["prior"] == kind})
    found = {n: samples(here, key, prior=kind, shots=n) for n in sizes}
    return {n: interval(values) for n, values in found.items() if values}


def images_needed(accuracy: Curve, level: float) -> float:
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


def times_fewer(learned: Curve, other: Curve, level: float) -> float:
    """How many times fewer images the learned prior needs; NaN where neither curve gets there."""
    ours, theirs = images_needed(learned, level), images_needed(other, level)
    return math.nan if math.isinf(ours) and math.isinf(theirs) else theirs / ours


LEVELS = (50, 80, 90)

RIVALS = ("mean", "zero")


def verdict(records: Sequence[Record]) -> Verdict:
    """At the published γ = τ = 1e-5, with one pair and a jitter, which is nearest to what the paper computes.

    Reproduced: half of the paper's factors or more at 50 % and 80 %, against both isotropic priors. Partly: fewer images than
    both. Other temperatures and treatments are shown and do not count: they were chosen after the fact.
    """
    found = {key: {kind: factors(records, kind, key) for kind in RIVALS} for key in (PAIR, WARM_PAIR, OURS)}
    theirs = paper_factors()
    pairs = [(ours, printed) for k in RIVALS for ours, printed in zip(found[PAIR][k][:2], theirs[k][:2], strict=True)]
    near = max((_means(records, kind, EXACT).get(10, math.nan) for kind in ("learned", *RIVALS)), default=math.nan)
    why = (
        "Times fewer images that the learned prior needs for 50 %, 80 % and 90 % accuracy than the isotropic prior around its "
        f"mean (around zero), at the published γ = τ = 1e-5 with one pair and a jitter of 10 %: {_times(found[PAIR])}; the paper "
        f"{_times(theirs)}. At other temperatures: {_times(found[WARM_PAIR])} at τ = 0.01, and with factors shrunk by 30 % "
        f"towards their mean {_times(found[OURS])} at τ = 0.1. With the sum kept exact and nothing shrunk no prior has more "
        f"than {near:.0f} % at γ = τ = 1e-5 with 10 per class. {_mode(records)}"
    )
    if all(_lead(ours) >= printed / 2 for ours, printed in pairs):
        return Verdict(Outcome.reproduced, why)
    return Verdict(Outcome.partly if all(_lead(ours) > 1 for ours, _ in pairs) else Outcome.not_reproduced, why)


def factors(records: Sequence[Record], kind: str, key: str) -> list[float]:
    """At each level, against an isotropic prior."""
    ours, theirs = _means(records, "learned", key), _means(records, kind, key)
    return [times_fewer(ours, theirs, level) for level in LEVELS]


def paper_factors() -> dict[str, list[float]]:
    """The same of the paper's curves, against both isotropic priors."""
    curves = {kind: paper_curve(kind) for kind in ("learned", *RIVALS)}
    return {kind: [times_fewer(curves["learned"], curves[kind], level) for level in LEVELS] for kind in RIVALS}


def _mode(records: Sequence[Record]) -> str:
    """What the networks do without draws."""
    learned, other = (_means(records, kind, "map") for kind in ("learned", "mean"))
    few = [n for n in (1, 10) if n in learned and n in other]
    pairs = ", ".join(f"{learned[n]:.0f} % against {other[n]:.0f} % with {n} per class" for n in few)
    return f"At the mode, without draws, the learned prior has {pairs} for the isotropic one around its mean."


def _means(records: Sequence[Record], kind: str, key: str) -> Curve:
    return {n: mean for n, (mean, _) in curve(records, kind, key).items()}


def _lead(f: float) -> float:
    return 0.0 if math.isnan(f) else f


def _times(factors: Mapping[str, Sequence[float]]) -> str:
    def shown(of: Sequence[float]) -> str:
        return ", ".join("–" if math.isnan(f) else "∞" if math.isinf(f) else f"{f:.1f}" for f in of)

    return f"{shown(factors['mean'])} ({shown(factors['zero'])})"
