"""Whether the learned prior bears warmer temperatures, in the figures at hand."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from posterity.studies.cold_posterior.reading import gammas, lost, temperatures
from posterity.studies.declaration import Outcome, Record, Verdict
from posterity.studies.priors import PRIORS


def verdict(records: Sequence[Record]) -> Verdict:
    """The paper: at τ = 0.1 the learned prior is within a point of τ → 0, isotropic ones lose more than ten."""
    gamma = 1e-5 if 1e-5 in gammas(records) else gammas(records)[0]
    published = {kind: _lost(records, kind, f"free {gamma:g} 0.1") for kind in PRIORS}
    warmest = {kind: _warmest(records, kind, gamma) for kind in PRIORS}
    straight = max(_lost(records, kind, f"{gamma:g} linearised") for kind in PRIORS)
    if published["learned"] <= 1 and min(published["mean"], published["zero"]) > 10:
        return Verdict(Outcome.reproduced, f"At τ = 0.1 the learned prior loses {published['learned']:.1f} points.")
    decades = ", ".join(
        f"τ = {tau:g} for {PRIORS[kind]}" if tau else f"none for {PRIORS[kind]}" for kind, tau in warmest.items()
    )
    why = (
        "With all weights drawn every prior falls to chance at τ = 0.1 (the learned one loses "
        f"{published['learned']:.0f} points): weights into dead units are drawn with variance τ/γ. With dead units left "
        "alone the paper's picture appears, some decades colder: the warmest temperature that costs less than 5 points "
        f"is {decades}; and the learned prior no longer depends on γ. The linearised predictive at τ = 1 loses at most "
        f"{max(0.0, straight):.1f} points and needs no tempering."
    )
    better = (warmest["learned"] or 0) > max(warmest["mean"] or 0, warmest["zero"] or 0)
    return Verdict(Outcome.partly if better else Outcome.not_reproduced, why)


def _warmest(records: Sequence[Record], kind: str, gamma: float) -> float | None:
    bearable = (t for t in temperatures(records) if _lost(records, kind, f"pinned {gamma:g} {t:g}") < 5)
    return next(bearable, None)


def _lost(records: Sequence[Record], kind: str, key: str) -> float:
    found = lost(records, kind, key)
    return statistics.mean(found.values()) if found else 100.0
