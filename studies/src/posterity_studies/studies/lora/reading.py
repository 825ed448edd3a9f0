"""Scores by seed, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import paired, shown


def targets_of(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(t for r in records for t in r.arguments["targets"]))


def by_seed(records: Sequence[Record], target: str, method: str, measure: str) -> dict[int, float]:
    key = f"{target} {method} {measure}"
    return {r.arguments["seed"]: r.values[key] for r in records if key in r.values}


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where, for most targets, the interval of the difference in NLL to the isotropic prior lies below zero."""
    better, sentences = 0, []
    targets = targets_of(records)
    for target in targets:
        learned = by_seed(records, target, "learned", "nll")
        gap = paired(learned, by_seed(records, target, "isotropic", "nll"))
        plain = paired(learned, by_seed(records, target, "none", "nll"))
        better += gap.high < 0
        sentences.append(
            f"{target} {shown(*gap, digits=3, sign=True)} to isotropic, {shown(*plain, digits=3, sign=True)} to fine-tuning"
        )
    why = (
        f"NLL with the learned prior (less is better): {'; '.join(sentences)}. Clearly below the isotropic prior's for "
        f"{better} of {len(targets)} sources of text."
    )
    return Verdict(Outcome.ours if 2 * better > len(targets) else Outcome.unsupported, why)
