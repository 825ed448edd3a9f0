"""The ladder at the γ where bounds are below one, and whether its rungs go down."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.studies.bounds.paper import PAPER_GAMMA, RUNGS

TOLERANCE = 0.005
"""A step counts as going down if it goes up by no more than this."""


def readable(records: Sequence[Record]) -> list[Record]:
    """The ladder of the largest γ: at the paper's own every bound is one."""
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
    down = [high >= low - TOLERANCE for high, low in pairwise(ladder)]
    outcome = Outcome.not_reproduced
    if any(down):
        outcome = Outcome.reproduced if all(down) else Outcome.partly
    estimates = " → ".join(f"{value:.3f}" for value in ladder)
    certificates = " → ".join(f"{means[rung]['certificate']:.3f}" for rung in means)
    why = _at_the_papers_gamma(at_paper)
    why += (
        f"At γ = {records[0].arguments['gamma']:g}, Catoni's estimate along the paper's rungs: {estimates} "
        f"({sum(down)} of {len(down)} steps do not go up). Certificates, which are valid bounds, along all rungs: {certificates}."
    )
    return Verdict(outcome, why)


def _at_the_papers_gamma(records: Sequence[Record]) -> str:
    found = [value for r in records for value in r.values.values()]
    if not found:
        return ""
    return (
        f"At the paper's γ the estimates are {min(v['catoni'] for v in found):.3f} or more, with a KL of at least "
        f"{min(v['kl'] for v in found):,.0f} nats. "
    )
