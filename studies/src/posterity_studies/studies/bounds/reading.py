"""The ladder at each γ: which of its steps go down, what holds, and what a larger training set would change."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from posterity.pacbayes import catoni_best
from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.published import BOUNDS, DELTA, EXAMPLES, GAMMAS

RUNGS = {
    "baseline": "baseline: zero-mean isotropic",
    "grid search": "+ grid search",
    "learned prior": "+ learned prior",
    "curvature scaling": "+ curvature scaling",
    "one number": "the same by one number",
    "projection": "+ frequentist projection",
    "declared grid": "ours: prior of a declared grid",
    "optimised": "ours: + optimised posterior",
}
TOLERANCE = 0.005
"""A step counts as going down if it goes up by no more than this."""
WHOLE = 11840
"""Images of the training set as we have it, a tenth of them for validation."""

Ladder = Mapping[str, float]


def at(records: Sequence[Record], gamma: float, examples: int | None = None) -> list[Record]:
    """The records of one γ and of so many examples, by default of the most there are."""
    most = max((r.arguments["examples"] for r in records), default=0)
    wanted = (gamma, examples or most)
    plain = [r for r in records if "search draws" not in r.arguments]
    return [r for r in plain if (r.arguments["gamma"], r.arguments["examples"]) == wanted]


def searched_by_draws(records: Sequence[Record]) -> list[Record]:
    """Those whose grid search is by the mean over draws, as published, instead of single draws."""
    return [r for r in records if "search draws" in r.arguments]


def readable(records: Sequence[Record]) -> list[Record]:
    """The ladder of the largest γ: at the paper's own every Catoni bound is one."""
    return at(records, max(r.arguments["gamma"] for r in records))


def mean_of(records: Sequence[Record], measure: str, rungs: Sequence[str] = tuple(RUNGS)) -> dict[str, float]:
    """A measure's mean over seeds, by rung that has any."""
    found = {rung: [r.values[rung][measure] for r in records if rung in r.values] for rung in rungs}
    return {rung: statistics.mean(values) for rung, values in found.items() if values}


def published_ladder(records: Sequence[Record], measure: str) -> dict[str, float]:
    """The paper's five rungs."""
    return mean_of(records, measure, tuple(BOUNDS))


def steps_down(ladder: Ladder) -> list[bool]:
    return [high >= low - TOLERANCE for high, low in pairwise(ladder.values())]


def with_more_images(records: Sequence[Record], rung: str) -> float:
    """Catoni's estimate for the paper's number of images, were KL and error the same: KL grows with it, so it is a lower end."""
    found = [r.values[rung] for r in records if rung in r.values]
    return statistics.mean(catoni_best(v["averaged"], v["kl"], EXAMPLES, DELTA)[0] for v in found)


def verdict(records: Sequence[Record]) -> Verdict:
    """Reproduced: at one of the paper's γ all steps go down by both of its estimates, and end below one.

    Partly: at some γ at least one step goes down. Steps that go up are named.
    """
    ours = readable(records)
    ladder = published_ladder(ours, "catoni")
    down = steps_down(ladder)
    whole = []
    for gamma in GAMMAS:
        ladders = [published_ladder(at(records, gamma), measure) for measure in ("catoni", "mcallester")]
        complete = all(len(one) == len(BOUNDS) and all(steps_down(one)) for one in ladders)
        whole.append(complete and ladders[0]["projection"] < 1)
    outcome = Outcome.reproduced if any(whole) else Outcome.partly if any(down) else Outcome.not_reproduced
    up = [rung for rung, falls in zip(list(ladder)[1:], down, strict=True) if not falls]
    certificates = " → ".join(f"{value:.3f}" for value in mean_of(ours, "certificate").values())
    estimates = " → ".join(f"{value:.3f}" for value in ladder.values())
    why = (
        f"{_at_the_papers_gammas(records)}At γ = {ours[0].arguments['gamma']:g}, Catoni's estimate along the paper's rungs: "
        f"{estimates} ({sum(down)} of {len(down)} steps do not go up"
        f"{'; up goes ' + ', '.join(up) if up else ''}). Certificates, which are valid bounds, along all rungs: {certificates}."
    )
    return Verdict(outcome, why)


def _at_the_papers_gammas(records: Sequence[Record]) -> str:
    parts = []
    for gamma in GAMMAS:
        here = at(records, gamma)
        catoni, mcallester = (published_ladder(here, measure) for measure in ("catoni", "mcallester"))
        if catoni:
            ladder = " → ".join(f"{value:.2f}" for value in mcallester.values())
            parts.append(f"γ = {gamma:g}: Catoni's estimates {min(catoni.values()):.3f} or more, McAllester's {ladder}")
    return f"At the paper's γ ({'; '.join(parts)}). " if parts else ""
