"""Whether the learned prior needs ten times fewer images, in the figures at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from posterity.studies.declaration import Outcome, Record, Verdict
from posterity.studies.small_data.reading import Curve, curve, factor

PUBLISHED, COLDER, APART = "free 1e-05 1e-05", "free 1e-05 1e-06", "pinned 1e-05 0.0001"


def verdict(records: Sequence[Record]) -> Verdict:
    """Ten times at the published γ and τ is "reproduced", a decade colder or with dead units left alone "partly"."""
    found = {key: _factors(records, key) for key in (PUBLISHED, COLDER, APART)}
    if _lead(found[PUBLISHED][0]) >= 5:
        return Verdict(Outcome.reproduced, f"{_times(found[PUBLISHED])} at γ = τ = 1e-5. {_mode(records)}")
    why = (
        "Not at the published γ = τ = 1e-5, where all priors stay near chance. One decade colder (τ = 1e-6) the learned "
        f"prior needs {_times(found[COLDER])}; with dead units left alone, at τ = 1e-4, {_times(found[APART])} (the "
        f"paper: 11.5 and 4.2). {_mode(records)}"
    )
    leads = max(_lead(f) for key in (COLDER, APART) for f in found[key])
    return Verdict(Outcome.partly if leads >= 5 else Outcome.not_reproduced, why)


def _factors(records: Sequence[Record], key: str) -> tuple[float, float]:
    """At 50 % and 80 % accuracy, against the isotropic prior around the same mean."""
    ours, theirs = _means(records, "learned", key), _means(records, "mean", key)
    return factor(ours, theirs, 50), factor(ours, theirs, 80)


def _mode(records: Sequence[Record]) -> str:
    """What the networks do without draws."""
    learned, other = (_means(records, kind, "map") for kind in ("learned", "mean"))
    few = [n for n in (1, 10) if n in learned and n in other]
    pairs = ", ".join(f"{learned[n]:.0f} % against {other[n]:.0f} % with {n} per class" for n in few)
    return f"Without draws, at the mode, it is no help ({pairs}): the effect is the rescue of posteriors that are drawn too wide."


def _means(records: Sequence[Record], kind: str, key: str) -> Curve:
    return {n: mean for n, (mean, _) in curve(records, kind, key).items()}


def _lead(f: float) -> float:
    return 0.0 if math.isnan(f) else f


def _times(factors: tuple[float, float]) -> str:
    shown = ["–" if math.isnan(f) else "∞" if math.isinf(f) else f"{f:.1f}" for f in factors]
    return f"{shown[0]} times fewer images for 50 % accuracy and {shown[1]} times for 80 %"
