"""Differences by kind of task, and whether the default call is behind anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.comparison import Comparison
from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import shown

KINDS = {"classes": "classes from scratch", "regression": "regressions from scratch", "transfer": "after a source"}


def kind(record: Record) -> str:
    each = record.arguments["each"]
    return KINDS[record.arguments["kind"]] + (f", {each} a class" if each else "")


WAYS = Comparison(
    ways={"ours": "`pt.learn`", "plain": "plain training, tuned", "ensemble": "an ensemble of five of it"},
    group=kind,
    unit=lambda r: r.arguments["set"],
    measures={"nll": "NLL"},
)


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where no kind of task has an NLL above plain training's beyond the interval over sets."""
    gaps = {group: WAYS.gap(records, group, "plain") for group in WAYS.groups(records)}
    why = "NLL less tuned plain training's, with 95 % intervals over sets: " + ", ".join(
        f"{group} {shown(*gap, digits=3, sign=True)}" for group, gap in gaps.items()
    )
    ensemble = WAYS.gap(records, KINDS["classes"], "ensemble")
    why += f". To the ensemble on classes from scratch: {shown(*ensemble, digits=3, sign=True)}."
    return Verdict(Outcome.ours if not any(gap.low > 0 for gap in gaps.values()) else Outcome.unsupported, why)
