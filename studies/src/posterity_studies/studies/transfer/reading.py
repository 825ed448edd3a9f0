"""Scores by seed, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import paired


def with_protocol(records: Sequence[Record], protocol: str) -> list[Record]:
    return [r for r in records if r.arguments["protocol"] == protocol]


def pairs_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    return sorted({(r.arguments["source"], r.arguments["target"]) for r in with_protocol(records, "fair")})


def with_pair(records: Sequence[Record], pair: tuple[str, str]) -> list[Record]:
    return [r for r in with_protocol(records, "fair") if (r.arguments["source"], r.arguments["target"]) == pair]


def by_seed(records: Sequence[Record], shots: int, kind: str, measure: str) -> dict[int, float]:
    return {
        r.arguments["seed"]: r.values[measure]
        for r in records
        if r.arguments["shots"] == shots and r.arguments["prior"] == kind
    }


def mean(sample: dict[int, float]) -> str:
    return f"{statistics.mean(sample.values()):.3f}" if sample else "–"


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where the learned prior is clearly better than a tuned isotropic one in most comparisons, clearly worse in none."""
    better, worse, total = [], [], 0
    for pair in pairs_of(records):
        here = with_pair(records, pair)
        for shots in sorted({r.arguments["shots"] for r in here}):
            total += 1
            gap = paired(*(by_seed(here, shots, kind, "map nll") for kind in ("learned", "mean")))
            name = f"{pair[0]} → {pair[1]} at {shots} per class ({gap.mean:+.2f})"
            better += [name] if gap.high < 0 else []
            worse += [name] if gap.low > 0 else []
    why = (
        "With every prior tuned on the same images, the learned one's MAP NLL less that of the isotropic one around the same "
        f"mean, paired by seed: clearly below zero in {len(better)} of {total} comparisons ({'; '.join(better) or 'none'}), "
        f"clearly above in {len(worse)} ({'; '.join(worse) or 'none'})."
    )
    return Verdict(Outcome.ours if 2 * len(better) > total and not worse else Outcome.unsupported, why)
