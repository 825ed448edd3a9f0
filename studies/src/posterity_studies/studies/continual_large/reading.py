"""Accuracy and NLL by method and seed, differences paired by seed, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, paired, shown
from posterity_studies.studies.continual_large.methods import NAMES

ENOUGH = 3
"""Seeds that are needed before anything is said of a difference."""
RIVALS = ("mean", "zero", "pnn 1e-05", "pnn 0.001", "dropout")

Runs = Mapping[str, Mapping[int, Record]]
"""Records by method and seed."""


def streams(records: Sequence[Record]) -> list[str]:
    """The streams that have results, in the order of their names."""
    return sorted({r.arguments["stream"] for r in records})


def by_method(records: Sequence[Record], stream: str) -> Runs:
    """The records of a stream; methods in the table's order."""
    found: dict[str, dict[int, Record]] = {}
    for name in NAMES:
        runs = {
            r.arguments["seed"]: r for r in records if (r.arguments["stream"], r.arguments["method"]) == (stream, name)
        }
        if runs:
            found[name] = runs
    return found


def average(run: Record, measure: str) -> float:
    """Over tasks, accuracy in %."""
    return (100 if measure == "accuracy" else 1) * statistics.mean(run.values[measure])


def ahead(runs: Runs, rival: str, measure: str = "accuracy") -> Interval:
    """The learned prior minus a rival, paired by seed."""
    ours, theirs = ({s: average(r, measure) for s, r in runs.get(n, {}).items()} for n in ("learned", rival))
    return paired(ours, theirs)


def verdict(records: Sequence[Record]) -> Verdict:
    """Reproduced: ahead of both isotropic priors and of plain columns beyond the interval in every stream, nothing forgotten.

    Partly: ahead of the isotropic prior around the same weights beyond the interval. With fewer than three seeds nothing is.
    """
    lines, sure, partly = [], [], []
    for stream in streams(records):
        runs = by_method(records, stream)
        gaps = {rival: ahead(runs, rival) for rival in RIVALS if runs.keys() >= {"learned", rival}}
        seeds = len(runs.get("learned", {}))
        said = ", ".join(f"{shown(*gap, 1, True)} to {NAMES[rival]}" for rival, gap in gaps.items())
        nll = ", ".join(f"{shown(*ahead(runs, rival, 'nll'), 3, True)} to {NAMES[rival]}" for rival in gaps)
        lines.append(
            f"Stream {stream}, {seeds} seed(s): the learned prior's mean accuracy in points {said or 'beside nothing yet'}; "
            f"NLL {nll or 'likewise'}"
        )
        sure.append(seeds >= ENOUGH and len(gaps) == len(RIVALS) and all(gap.low > 0 for gap in gaps.values()))
        partly.append(seeds >= ENOUGH and "mean" in gaps and gaps["mean"].low > 0)
    changed = sum(r.values["changed"] for r in records)
    tested = sum(sum(r.values["tested"]) for r in records)
    few = (
        ""
        if any(len(by_method(records, s).get("learned", {})) >= ENOUGH for s in streams(records))
        else ("Too few seeds to decide anything. ")
    )
    why = f"{few}{'. '.join(lines)}. Predictions of earlier tasks that changed in any bit: {changed} of {tested}."
    if lines and all(sure) and not changed:
        return Verdict(Outcome.reproduced, why)
    return Verdict(Outcome.partly if any(partly) and not changed else Outcome.not_reproduced, why)
