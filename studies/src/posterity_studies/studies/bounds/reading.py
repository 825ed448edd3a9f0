"""The ladder that says something, and whether its rungs go down."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.studies.bounds.paper import PAPER_GAMMA, RUNGS


def readable(records: Sequence[Record]) -> list[Record]:
    """The ladder of the largest γ: the paper's own is at one throughout."""
    largest = max(r.arguments["gamma"] for r in records)
    return [r for r in records if r.arguments["gamma"] == largest]


def verdict(records: Sequence[Record]) -> Verdict:
    """Whether the paper's rungs go down, by its own estimate, and what holds at the top and the bottom."""
    at_paper = [r for r in records if r.arguments["gamma"] == PAPER_GAMMA]
    records = readable(records)
    means = {
        rung: {
            key: statistics.mean(r.values[rung][key] for r in records if rung in r.values)
            for key in ("catoni", "certificate")
        }
        for rung in RUNGS
        if any(rung in r.values for r in records)
    }
    ladder = [means[rung]["catoni"] for rung, (_, paper) in RUNGS.items() if paper is not None and rung in means]
    steps = [high >= low - 0.005 for high, low in pairwise(ladder)]
    outcome = Outcome.reproduced if all(steps) else Outcome.partly if any(steps) else Outcome.not_reproduced
    told = " → ".join(f"{value:.3f}" for value in ladder)
    ends = " → ".join(f"{means[rung]['certificate']:.3f}" for rung in means)
    least = min((v["kl"] for r in at_paper for v in r.values.values()), default=math.nan)
    why = f"At the paper's γ every rung is at one: KL is {least:,.0f} nats at least. " if at_paper else ""
    why += f"At γ = {records[0].arguments['gamma']:g}, Catoni's estimate along the paper's rungs: {told}. "
    return Verdict(outcome, f"{why}Certificates, which hold, along all rungs: {ends}.")
