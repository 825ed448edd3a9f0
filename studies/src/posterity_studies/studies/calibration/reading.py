"""Scores by seed, and whether the learned prior is the better calibrated one."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import paired
from posterity_studies.studies.calibration.methods import METHODS


def by_seed(
    records: Sequence[Record], pair: tuple[str, str], shots: int, method: str, measure: str
) -> dict[int, float]:
    wanted = (*pair, shots, method)
    return {
        r.arguments["seed"]: r.values[measure]
        for r in records
        if tuple(r.arguments[name] for name in ("source", "target", "shots", "method")) == wanted
    }


def tasks(records: Sequence[Record]) -> list[tuple[tuple[str, str], int]]:
    return sorted({((r.arguments["source"], r.arguments["target"]), r.arguments["shots"]) for r in records})


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where, on every task, the learned prior's NLL is clearly below that of most others and clearly above none."""
    sentences, upheld = [], []
    for pair, shots in tasks(records):
        learned = by_seed(records, pair, shots, "learned", "nll")
        others = {m: paired(learned, by_seed(records, pair, shots, m, "nll")) for m in METHODS if m != "learned"}
        beaten = [METHODS[m].name for m, gap in others.items() if gap.high < 0]
        lost = [METHODS[m].name for m, gap in others.items() if gap.low > 0]
        upheld.append(not lost and 2 * len(beaten) > len(others))
        sentences.append(
            f"{pair[0]} → {pair[1]} at {shots} per class ({len(learned)} seeds): clearly lower than "
            f"{'; '.join(beaten) or 'none'}. Clearly higher than {'; '.join(lost) or 'none'}"
        )
    why = (
        f"The learned prior's NLL beside each other method's, paired by seed. {'. '.join(sentences)}. All other differences are "
        "within their 95 % intervals."
    )
    return Verdict(Outcome.ours if upheld and all(upheld) else Outcome.unsupported, why)
