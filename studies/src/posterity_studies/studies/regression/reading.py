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
    """Upheld where the interval of the difference to the mode lies below zero."""
    said, better = [], 0
    for data in sets_of(records):
        mean, half = paired(by_split(records, data, "linearised nll"), by_split(records, data, "map nll"))
        ensemble, _ = paired(by_split(records, data, "linearised nll"), by_split(records, data, "ensemble nll"))
        better += mean + half < 0
        said.append(f"{data} {shown(mean, half, 3, True)} to the mode, {ensemble:+.3f} to an ensemble")
    why = (
        f"Test NLL of the linearised Laplace posterior (less is better): {'; '.join(said)}. Better than the mode with "
        f"well-chosen noise on {better} of {len(said)} sets."
    )
    return Verdict(Outcome.ours if better else Outcome.unsupported, why)
