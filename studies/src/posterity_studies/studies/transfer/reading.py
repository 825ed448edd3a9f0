"""Scores by seed, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import paired


def of(records: Sequence[Record], protocol: str) -> list[Record]:
    return [r for r in records if r.arguments["protocol"] == protocol]


def pairs_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    return sorted({(r.arguments["source"], r.arguments["target"]) for r in of(records, "fair")})


def on(records: Sequence[Record], pair: tuple[str, str]) -> list[Record]:
    return [r for r in of(records, "fair") if (r.arguments["source"], r.arguments["target"]) == pair]


def by_seed(records: Sequence[Record], shots: int, kind: str, measure: str) -> dict[int, float]:
    return {
        r.arguments["seed"]: r.values[measure]
        for r in records
        if r.arguments["shots"] == shots and r.arguments["prior"] == kind
    }


def mean(sample: dict[int, float]) -> str:
    return f"{statistics.mean(sample.values()):.3f}" if sample else "–"


def verdict(records: Sequence[Record]) -> Verdict:
    better, total = [], 0
    for pair in pairs_of(records):
        here = on(records, pair)
        for shots in sorted({r.arguments["shots"] for r in here}):
            total += 1
            mean, half = paired(*(by_seed(here, shots, kind, "map nll") for kind in ("learned", "mean")))
            if mean + half < 0:
                better.append(f"{pair[0]} → {pair[1]} at {shots} per class ({mean:+.2f})")
    why = (
        f"With every prior tuned on the same images the learned one has the lower MAP NLL in {len(better)} of {total} "
        f"comparisons (95 % interval of the paired difference below zero): {'; '.join(better) or 'none'}."
    )
    return Verdict(Outcome.ours, why)
