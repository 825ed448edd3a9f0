"""Whether the learned prior needs ten times fewer images, in the figures at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from posterity.studies.declaration import Outcome, Record, Verdict
from posterity.studies.small_data.reading import Curve, curve, factor


def verdict(records: Sequence[Record]) -> Verdict:
    """Ten times at the published γ and τ is "reproduced", at some γ and τ "partly"."""
    found = {}
    for key in ("free 1e-05 1e-05", "free 1e-05 1e-06", "pinned 1e-05 0.1", "pinned 1e-05 0.01", "pinned 1e-05 0.001"):
        found[key] = _factor(records, key)
    published = found.pop("free 1e-05 1e-05")
    best = max(found, key=lambda key: 0.0 if math.isnan(found[key]) else found[key])
    at_mode = {kind: _means(records, kind, "map") for kind in ("learned", "mean")}
    few = min(at_mode["learned"], default=0)
    mode = (
        f"At the mode itself, without draws, the learned prior is behind ({at_mode['learned'][few]:.0f} % against "
        f"{at_mode['mean'][few]:.0f} % with {few} per class): the effect is the rescue of a posterior drawn too wide."
        if few and at_mode["learned"][few] < at_mode["mean"][few]
        else ""
    )
    if published >= 5:
        return Verdict(Outcome.reproduced, f"{_times(published)} fewer images for 50 % at γ = τ = 1e-5. {mode}")
    if found[best] >= 2:
        why = (
            f"Not at the published γ = τ = 1e-5, where all priors stay near chance, but elsewhere on the grid ({_words(best)}): "
            f"{_times(found[best])} fewer images for 50 % accuracy than the isotropic prior around the same mean. {mode}"
        )
        return Verdict(Outcome.partly, why)
    return Verdict(
        Outcome.not_reproduced, f"No γ and τ of the grid gave the learned prior a lead of 2× at 50 %. {mode}"
    )


def _factor(records: Sequence[Record], key: str) -> float:
    return factor(_means(records, "learned", key), _means(records, "mean", key), 50)


def _means(records: Sequence[Record], kind: str, key: str) -> Curve:
    return {n: mean for n, (mean, _) in curve(records, kind, key).items()}


def _times(f: float) -> str:
    return "arbitrarily many times (the other never gets there)" if math.isinf(f) else f"{f:.1f} times"


def _words(key: str) -> str:
    units, gamma, tau = key.split()
    return f"γ = {gamma}, τ = {tau}" + (", dead units left alone" if units == "pinned" else "")
