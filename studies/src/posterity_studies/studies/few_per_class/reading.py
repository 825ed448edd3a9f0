"""Both ways by examples a class, and whether one is better."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.comparison import Comparison
from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import shown

BOTH = Comparison(
    ways={"one of every class": "one of every class", "alone": "each alone"},
    group=lambda r: f"{r.arguments['each']} a class",
    unit=lambda r: f"{r.arguments['source']} {r.arguments['target']} {r.arguments['draw']}",
    measures={"nll": "NLL", "ece": "ECE", "accuracy": "accuracy"},
)


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where the difference is below zero beyond its interval with one and two a class, and above it with no number."""
    gaps = {group: BOTH.gap(records, group, "alone") for group in BOTH.groups(records)}
    why = "NLL with one of every class left out at a time, less NLL with each example left out alone: " + ", ".join(
        f"{group} {shown(*gap, digits=3, sign=True)}" for group, gap in gaps.items()
    )
    held = all(gap.low <= 0 for gap in gaps.values()) and all(
        gap.high < 0 for group, gap in gaps.items() if group in ("1 a class", "2 a class")
    )
    return Verdict(Outcome.ours if held else Outcome.unsupported, why + ".")
