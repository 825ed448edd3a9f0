"""Accuracies over temperature, ours and the paper's; what draws lose to the mode; the verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared import published
from posterity_studies.shared.drawing import TREATMENTS
from posterity_studies.shared.priors import PRIORS
from posterity_studies.studies.cold_posterior.cells import ALL

JUDGED = "shrunk 0.3"
"""The treatment that the verdict is by, for all settings alike: the same as in the study small-data."""


def paper_curve(gamma: float, kind: str) -> dict[float, float]:
    """The paper's Figure 8 (left), by temperature."""
    return published.curve("figure 8, left", f"{gamma:g} {kind}")


def amounts(records: Sequence[Record]) -> list[int]:
    """Images per class that there are results for, all of them first."""
    return sorted({r.arguments["shots"] for r in records})


def named(shots: int) -> str:
    return "all images" if shots == ALL else f"{shots} per class"


def with_shots(records: Sequence[Record], shots: int) -> list[Record]:
    return [r for r in records if r.arguments["shots"] == shots]


def gammas(records: Sequence[Record]) -> list[float]:
    return sorted({g for r in records for g in r.arguments["gammas"]}, reverse=True)


def treatments(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(treatment for r in records for treatment in r.arguments["taus"]))


def temperatures(records: Sequence[Record]) -> list[float]:
    return sorted({t for r in records for taus in r.arguments["taus"].values() for t in taus}, reverse=True)


def samples(records: Sequence[Record], kind: str, key: str) -> dict[int, float]:
    """By seed."""
    return {r.arguments["seed"]: r.values[key] for r in records if r.arguments["prior"] == kind and key in r.values}


def lost(records: Sequence[Record], kind: str, key: str) -> list[float]:
    """What is lost to the mode, in points of accuracy, seed by seed."""
    mode = samples(records, kind, "map")
    return [mode[seed] - value for seed, value in samples(records, kind, key).items()]


def mean_lost(records: Sequence[Record], kind: str, key: str) -> float:
    found = lost(records, kind, key)
    return statistics.mean(found) if found else float("nan")


def paper_lost() -> str:
    """What the paper's draws lose at τ = 0.1 to its coldest, in points (Figure 2c)."""
    curves = [published.curve("figure 2c", kind) for kind in PRIORS]
    return " / ".join(f"{curve[min(curve)] - curve[0.1]:.1f}" for curve in curves)


def verdict(records: Sequence[Record]) -> Verdict:
    """The paper: at τ = 0.1 the learned prior is within a point of τ → 0, isotropic ones lose more than ten.

    Reproduced: so on all images, with the one treatment of directions without curvature that all settings are judged by.
    Partly: on fewer images only.
    """
    gamma = 1e-5 if 1e-5 in gammas(records) else gammas(records)[0]
    found = {shots: Remedy.of(with_shots(records, shots), JUDGED, gamma) for shots in amounts(records)}
    found = {shots: remedy for shots, remedy in found.items() if remedy.is_known}
    whole = min(amounts(records))
    lines = "; ".join(f"{named(shots)} {r.shown}" for shots, r in sorted(found.items()))
    exact = Remedy.of(with_shots(records, whole), "free", gamma)
    linear = [
        mean_lost(with_shots(records, n), kind, f"{gamma:g} linearised") for n in amounts(records) for kind in PRIORS
    ]
    worst = max((loss for loss in linear if not math.isnan(loss)), default=math.nan)
    why = (
        "Points of accuracy lost at τ = 0.1 by the learned prior / isotropic at its mean / at zero, "
        f"{TREATMENTS[JUDGED]}: {lines} (the paper, all images: {paper_lost()}).{_over_gammas(records, found)} "
        "With the exact sum and nothing "
        f"shrunk: {exact.shown} ({named(whole)}). The linearised predictive at τ = 1 loses at most {worst:.1f} points."
    )
    holds = {shots for shots, remedy in found.items() if remedy.holds}
    return Verdict(Outcome.reproduced if whole in holds else Outcome.partly if holds else Outcome.not_reproduced, why)


@dataclass(frozen=True)
class Remedy:
    """A treatment of directions without curvature, and what each prior loses with it at τ = 0.1."""

    treatment: str
    learned: float
    mean: float
    zero: float

    @classmethod
    def of(cls, here: Sequence[Record], treatment: str, gamma: float) -> Remedy:
        return cls(treatment, *(mean_lost(here, kind, f"{treatment} {gamma:g} 0.1") for kind in PRIORS))

    @property
    def holds(self) -> bool:
        return self.learned <= 1 and min(self.mean, self.zero) > 10

    @property
    def is_known(self) -> bool:
        return not any(map(math.isnan, (self.learned, self.mean, self.zero)))

    @property
    def shown(self) -> str:
        return f"{self.learned:.1f} / {self.mean:.1f} / {self.zero:.1f}"


def _over_gammas(records: Sequence[Record], found: Mapping[int, Remedy]) -> str:
    """How much γ changes, where there are several."""
    changes = []
    for shots, remedy in found.items():
        here = with_shots(records, shots)
        for kind in PRIORS:
            losses = [mean_lost(here, kind, f"{remedy.treatment} {g:g} 0.1") for g in gammas(here)]
            losses = [loss for loss in losses if not math.isnan(loss)]
            changes += [max(losses) - min(losses)] if len(losses) > 1 else []
    if not changes:
        return ""
    known = gammas(records)
    return f" Over γ from {known[-1]:g} to {known[0]:g} these change by at most {max(changes):.1f} points."
