"""Whether the learned prior bears warmer temperatures, in the figures at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from posterity.studies.cold_posterior.reading import amounts, gammas, mean_lost, named, of, ways
from posterity.studies.declaration import Outcome, Record, Verdict
from posterity.studies.priors import PRIORS
from posterity.studies.ways import WAYS


def verdict(records: Sequence[Record]) -> Verdict:
    """The paper: at τ = 0.1 the learned prior is within a point of τ → 0, isotropic ones lose more than ten."""
    gamma = 1e-5 if 1e-5 in gammas(records) else gammas(records)[0]
    whole, holds, lines = min(amounts(records)), set(), []
    for shots in amounts(records):
        here = of(records, shots)
        for way in ways(here):
            losses = {kind: mean_lost(here, kind, f"{way} {gamma:g} 0.1") for kind in PRIORS}
            if way.startswith(("shrunk", "joined")):
                lines.append(f"{WAYS[way]}, {named(shots)}: {' / '.join(f'{loss:.1f}' for loss in losses.values())}")
            if losses["learned"] <= 1 and min(losses["mean"], losses["zero"]) > 10:
                holds.add(shots)
    linear = [mean_lost(of(records, n), kind, f"{gamma:g} linearised") for n in amounts(records) for kind in PRIORS]
    straight = max((loss for loss in linear if not math.isnan(loss)), default=math.nan)
    exact = mean_lost(of(records, whole), "learned", f"free {gamma:g} 0.1")
    why = (
        f"Points of accuracy lost at τ = 0.1 by learned / isotropic at the mean / at zero. {'; '.join(lines)}. In the exact "
        f"sum with nothing shrunk every prior falls to chance there (the learned one loses {exact:.0f}): weights into dead "
        f"units are drawn with variance τ/γ. The linearised predictive at τ = 1 loses at most {straight:.1f} points "
        "and needs no tempering."
    )
    outcome = Outcome.reproduced if whole in holds else Outcome.partly if holds else Outcome.not_reproduced
    return Verdict(outcome, why)
