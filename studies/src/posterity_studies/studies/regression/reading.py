"""Scores by split, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import paired, shown


def by_split(records: Sequence[Record], data: str, key: str) -> dict[int, float]:
    return {r.arguments["split"]: r.values[key] for r in records if r.arguments["data"] == data}


def sets_of(records: Sequence[Record]) -> list[str]:
    return sorted({r.arguments["data"] for r in records})


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where, on most sets, the interval of the difference to the mode lies below zero."""
    sentences, better = [], 0
    for data in sets_of(records):
        ours, mode, ensemble = (by_split(records, data, f"{m} nll") for m in ("linearised", "map", "ensemble"))
        gap = paired(ours, mode)
        better += gap.high < 0
        sentences.append(
            f"{data} {shown(*gap, digits=3, sign=True)} to the mode, {paired(ours, ensemble).mean:+.3f} to an ensemble"
        )
    why = (
        f"Test NLL of the linearised Laplace posterior (less is better): {'; '.join(sentences)}. Clearly better than the "
        f"mode with well-chosen noise on {better} of {len(sentences)} sets."
    )
    return Verdict(Outcome.ours if 2 * better > len(sentences) else Outcome.unsupported, why)
