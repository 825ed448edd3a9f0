"""Measures by set, shots and method, paired by seed, and the verdict that was declared before the first test figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval, shown
from posterity_studies.studies.few_shot_modes.cells import FLAT

MEASURES = {"accuracy": 1, "nll": -1, "ece": -1, "auroc": 1}
"""What the verdict is about, and whether more of it is better."""
NAMES = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE", "auroc": "AUROC of unknown inputs"}
RIVALS = {"published": "the paper's isotropic prior", "tuned": "the tuned isotropic prior"}
ENOUGH = 6
"""Draws (sets × seeds) before anything is said."""

Draw = tuple[str, int, int]
"""Set, shots, seed."""
Found = Mapping[str, Mapping[Draw, Mapping[str, Any]]]
"""Measures by method and draw."""


def results(records: Sequence[Record]) -> Found:
    """All methods of all draws."""
    found: dict[str, dict[Draw, Mapping[str, Any]]] = {}
    for record in records:
        draw = (record.arguments["set"], record.arguments["shots"], record.arguments["seed"])
        for method, values in record.values["methods"].items():
            found.setdefault(method, {})[draw] = values
    return found


def gap(found: Found, ours: str, base: str, measure: str, of: str | None = None, shots: int | None = None) -> Interval:
    """ours − base over the draws that both have, of one set or number of shots or of all: each is a pair of its own."""
    one, two = (found.get(method, {}) for method in (ours, base))
    both = [d for d in one if d in two and of in (None, d[0]) and shots in (None, d[1])]
    return interval([one[d][measure] - two[d][measure] for d in both if measure in one[d] and measure in two[d]])


def drawn(found: Found) -> int:
    """Draws of pictures that the learned prior and both isotropic ones have."""
    return len(set.intersection(*(set(found.get(method, {})) for method in ("learned", *RIVALS))))


def lead(found: Found, base: str, measure: str) -> int:
    """1 where the learned prior is better beyond the interval, −1 where it is worse, else 0."""
    found_gap = gap(found, "learned", base, measure)
    better = MEASURES[measure] * found_gap.mean
    return 0 if not abs(found_gap.mean) > found_gap.half else (1 if better > 0 else -1)


UNDECIDED, CLAIM, PUBLISHED_ONLY, NEITHER, TUNED_ONLY = (
    "too few draws yet",
    "the claim: a lead over both",
    "as published, no gain over a tuned isotropic prior",
    "not reproduced",
    "a lead over the tuned prior alone",
)


def said(found: Found, measure: str) -> str:
    """What became of one measure."""
    if drawn(found) < ENOUGH:
        return UNDECIDED
    published, tuned = (lead(found, base, measure) > 0 for base in RIVALS)
    if published:
        return CLAIM if tuned else PUBLISHED_ONLY
    return TUNED_ONLY if tuned else NEITHER


def verdict(records: Sequence[Record]) -> Verdict:
    """Reproduced: in accuracy or NLL the learned prior leads both isotropic ones, beyond the interval over sets × seeds.

    Partly: in accuracy or NLL it leads the paper's isotropic prior. In either case it is behind that one in none of the four
    measures. Else not reproduced.
    """
    found = results(records)
    pairs = drawn(found)
    parts = []
    for measure, name in NAMES.items():
        gaps = ", ".join(
            f"{shown(*gap(found, 'learned', base, measure), 3, sign=True)} to {text}" for base, text in RIVALS.items()
        )
        parts.append(f"{name} {gaps} ({said(found, measure)})")
    why = f"The learned prior minus isotropic ones over {pairs} draws of pictures: {'; '.join(parts)}. {_flat(records)}"
    if pairs < ENOUGH:
        return Verdict(Outcome.undecided, f"Too few draws to decide: {ENOUGH} are needed. {why}")
    behind = any(lead(found, "published", measure) < 0 for measure in MEASURES)
    outcomes = {said(found, measure) for measure in ("accuracy", "nll")}
    if CLAIM in outcomes and not behind:
        return Verdict(Outcome.reproduced, why)
    return Verdict(Outcome.partly if PUBLISHED_ONLY in outcomes and not behind else Outcome.not_reproduced, why)


def modes(records: Sequence[Record]) -> list[tuple[Draw, str, Mapping[str, float]]]:
    """Every mode that was trained."""
    return [
        ((r.arguments["set"], r.arguments["shots"], r.arguments["seed"]), name, values)
        for r in records
        for name, values in r.values["modes"].items()
    ]


def _flat(records: Sequence[Record]) -> str:
    """Of networks that went on to the end: those of other strengths have one piece of training."""
    counts = {_draw(r): r.values["train"] for r in records}
    found = [(draw, values) for draw, _, values in modes(records) if "pieces" in values]
    flat = sum(values["gained"] <= FLAT * counts[draw] for draw, values in found)
    return (
        f"Modes whose objective gained no more than {FLAT} nats a picture in the last quarter: {flat} of {len(found)}."
    )


def _draw(record: Record) -> Draw:
    return record.arguments["set"], record.arguments["shots"], record.arguments["seed"]
