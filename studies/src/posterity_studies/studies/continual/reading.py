"""Runs by method and seed, differences paired by seed, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.studies.continual.methods import DECAYS, NAMES

FULL = {"bpnn zero": "BPNN, isotropic at zero", "pnn": "PNN", "ewc": "EWC", "online laplace": "online Laplace"}

TUNED = "PNN, weight decay by validation"


def where(record: Record) -> tuple[str, str, int]:
    a = record.arguments
    return a["source"], a["target"], a["shots"]


def by_method(records: Sequence[Record]) -> dict[str, dict[int, Record]]:
    """Runs by seed, for each method; and PNN with the weight decay that validation data chose, seed by seed."""
    found: dict[str, dict[int, Record]] = {}
    for name, title in NAMES.items():
        runs = {r.arguments["seed"]: r for r in records if r.arguments["method"] == name}
        if runs:
            found[title] = runs
        if name == f"pnn {DECAYS[-1]:g}":
            fixed = [r for r in records if r.arguments["method"].startswith("pnn ")]
            by_seed = {
                r.arguments["seed"]: [s for s in fixed if s.arguments["seed"] == r.arguments["seed"]] for r in fixed
            }
            if by_seed:
                found[TUNED] = {seed: min(rs, key=lambda r: r.values["held out"]) for seed, rs in by_seed.items()}
    return found


def ahead(ours: dict[int, Record], theirs: dict[int, Record]) -> list[float]:
    """Points of accuracy, seed by seed."""
    both = sorted(ours.keys() & theirs.keys())
    return [100 * (ours[s].values["acc"] - theirs[s].values["acc"]) for s in both]


def gain(run: Record, alone: Record) -> list[float]:
    """Task by task, from the second on: what those before it were worth."""
    pairs = zip(run.values["when learned"], alone.values["when learned"], strict=True)
    return [ours - theirs for ours, theirs in list(pairs)[1:]]


def verdict(records: Sequence[Record]) -> Verdict:
    """Reproduced: in every stream clearly ahead of an isotropic prior around the same mean, and nothing forgotten.

    Partly: clearly ahead in one stream, or ahead on average in one.
    """
    few = [r for r in records if r.arguments["protocol"] == "small"]
    lines, gains = [], []
    for place in sorted({where(r) for r in few}):
        here = by_method([r for r in few if where(r) == place])
        learned = here.get(NAMES["bpnn learned"], {})
        rivals = {
            "isotropic around the source weights": NAMES["bpnn mean"],
            "at zero": NAMES["bpnn zero"],
            "PNN": TUNED,
        }
        leads = {short: ahead(learned, here.get(name, {})) for short, name in rivals.items()}
        if leads["isotropic around the source weights"]:
            gains.append(interval(leads["isotropic around the source weights"]))
            by = ", ".join(f"{shown(*interval(lead), sign=True)} ({short})" for short, lead in leads.items())
            lines.append(f"split {place[1]}, {place[2]} a class: {by}")
    sure = sum(lead.low > 0 for lead in gains)
    behind = sum(lead.mean <= 0 for lead in gains)
    columns = [r for r in few if r.arguments["method"].startswith("bpnn")]
    forgotten = max((abs(r.values["bwt"]) for r in columns), default=math.nan)
    if gains and sure == len(gains) and forgotten == 0:
        outcome = Outcome.reproduced
    elif sure > 0 or behind < len(gains):
        outcome = Outcome.partly
    else:
        outcome = Outcome.not_reproduced
    return Verdict(
        outcome,
        "Points of mean accuracy by which columns with the learned prior are ahead, paired by seed: "
        f"{'; '.join(lines)}. Columns forget {100 * forgotten:.1f} points.",
    )
