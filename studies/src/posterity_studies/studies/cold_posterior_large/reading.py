"""How warm each way of predicting may be before it falls behind the mode, ours and the paper's; the verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared import published
from posterity_studies.shared.intervals import Interval, paired, shown
from posterity_studies.studies.cold_posterior_large.methods import PRIORS, WAYS

ENOUGH = 2
"""Seeds that are needed before anything is said of a difference: they are of powers of ten."""
LOST = 1.0
"""Points of accuracy below the mode that still count as level with it."""
LINEAR = {"calibrated": "leave-one-out scales", "plain": "the covariance as it is, τ = 1"}
"""Both predictives of the exact posterior of the network made linear."""
COLDER = -16.0
"""Stands for a log10 of a temperature where even the coldest, 1e-15, is too warm."""


def paper_curve(gamma: float, kind: str) -> dict[float, float]:
    """The paper's Figure 8 (right), accuracy by temperature."""
    return published.curve("figure 8, right", f"{gamma:g} {kind}")


def around(records: Sequence[Record], kind: str) -> dict[int, Record]:
    """Those with a mode and temperatures, by seed."""
    return _by_seed(records, kind, "draws")


def in_function_space(records: Sequence[Record], kind: str) -> dict[int, Record]:
    """Those of the exact linear posterior, by seed."""
    return _by_seed(records, kind, "function space")


def _by_seed(records: Sequence[Record], kind: str, who: str) -> dict[int, Record]:
    here = [r for r in records if (r.arguments["prior"], r.arguments["who"]) == (kind, who)]
    return {r.arguments["seed"]: r for r in sorted(here, key=lambda r: r.arguments["seed"])}


def gammas(records: Sequence[Record]) -> list[float]:
    return sorted({g for r in records for g in r.arguments.get("gammas", [])}, reverse=True)


def ways(records: Sequence[Record]) -> list[str]:
    return [way for way in WAYS if any(way in r.arguments.get("taus", {}) for r in records)]


def curve(record: Record, gamma: float, way: str, measure: str) -> dict[float, float]:
    """A measure by temperature."""
    return {float(tau): found[measure] for tau, found in record.values[f"{gamma:g}"].get(way, {}).items()}


def warmest(accuracies: Mapping[float, float], mode: float) -> float:
    """log10 of the warmest temperature up to which no accuracy is more than a point below the mode's."""
    found = COLDER
    for tau in sorted(accuracies):
        if accuracies[tau] < mode - LOST:
            break
        found = math.log10(tau)
    return found


def warmest_by_seed(records: Sequence[Record], kind: str, gamma: float, way: str) -> dict[int, float]:
    return {
        seed: warmest(curve(r, gamma, way, "accuracy"), r.values["mode"]["accuracy"])
        for seed, r in around(records, kind).items()
    }


def paper_reached(kind: str) -> float:
    """What the paper's draws reach at 1e-15 with the better γ: its mode."""
    return max(max(paper_curve(g, kind).values()) for g in (1e-3, 1e-5))


def paper_warmest(gamma: float, kind: str) -> float:
    """The same of the paper's means."""
    return warmest(paper_curve(gamma, kind), paper_reached(kind))


def ahead(records: Sequence[Record], gamma: float, way: str) -> dict[int, float]:
    """How many powers of ten warmer the learned prior may be than the isotropic one, by seed."""
    learned, mean = (warmest_by_seed(records, kind, gamma, way) for kind in PRIORS)
    return {seed: learned[seed] - mean[seed] for seed in learned.keys() & mean.keys()}


def modes(records: Sequence[Record], kind: str, measure: str = "accuracy") -> dict[int, float]:
    return {seed: r.values["mode"][measure] for seed, r in around(records, kind).items()}


def flat_modes(records: Sequence[Record], kind: str, measure: str = "accuracy") -> dict[int, float]:
    """Of trainings that go on until the objective is flat."""
    return {seed: r.values["mode"][measure] for seed, r in _by_seed(records, kind, "mode").items()}


def mode_gap(records: Sequence[Record], measure: str = "accuracy") -> Interval:
    """Learned minus isotropic at the mode, paired by seed: of flat modes where there are any."""
    flat = [flat_modes(records, kind, measure) for kind in PRIORS]
    return paired(*(flat if all(flat) else [modes(records, kind, measure) for kind in PRIORS]))


def untempered(records: Sequence[Record], kind: str, name: str, measure: str) -> dict[int, float]:
    """Of a predictive in function space: "calibrated" or "plain"."""
    return {seed: r.values[name][measure] for seed, r in in_function_space(records, kind).items()}


def needs_none(records: Sequence[Record], name: str) -> bool:
    """Whether a predictive in function space, at τ = 1, is level with its prior's mode in accuracy and no worse in NLL."""
    for kind in PRIORS:
        better = {m: paired(untempered(records, kind, name, m), modes(records, kind, m)) for m in ("accuracy", "nll")}
        if not (better["accuracy"].mean >= -LOST and better["nll"].mean <= 0):
            return False
    return True


def verdict(records: Sequence[Record]) -> Verdict:
    """Reproduced: on every seed and with every γ, draws with the learned prior may be warmer than with the isotropic one, and
    both predictives in function space need no tempering. Partly: the first with one γ at least."""
    leads = [ahead(records, gamma, "free") for gamma in gammas(records)]
    warmer = [len(found) >= ENOUGH and min(found.values()) > 0 for found in leads]
    outcome = Outcome.not_reproduced
    if all(warmer) and all(needs_none(records, name) for name in LINEAR):
        outcome = Outcome.reproduced
    elif any(warmer):
        outcome = Outcome.partly
    return Verdict(outcome, " ".join([_temperatures(records), _at_the_mode(records), _at_one(records)]))


def _temperatures(records: Sequence[Record]) -> str:
    parts = []
    for way in (way for way in ways(records) if way in ("free", "below")):
        found = ", ".join(
            f"{' / '.join(power(warmest_by_seed(records, kind, gamma, way)) for kind in PRIORS)} (γ = {gamma:g})"
            for gamma in gammas(records)
        )
        parts.append(f"{WAYS[way]} {found}")
    theirs = ", ".join(
        f"{' / '.join(power({0: paper_warmest(gamma, kind)}) for kind in PRIORS)} (γ = {gamma:g})"
        for gamma in (1e-3, 1e-5)
    )
    return (
        "The warmest τ up to which accuracy is within a point of the mode's, learned / isotropic prior, median of seeds: "
        f"{'; '.join(parts)}; the paper's draws {theirs}."
    )


def _at_the_mode(records: Sequence[Record]) -> str:
    gaps = [shown(*mode_gap(records, m), digits, sign=True) for m, digits in (("accuracy", 1), ("nll", 2))]
    theirs = paper_reached("learned") - paper_reached("mean")
    return f"The mode, learned minus isotropic: {gaps[0]} points (the paper {theirs:+.1f}), {gaps[1]} nats."


def _at_one(records: Sequence[Record]) -> str:
    """In function space, where no γ is given."""
    parts = []
    for name, text in LINEAR.items():
        for kind, prior in PRIORS.items():
            gap = {m: paired(untempered(records, kind, name, m), modes(records, kind, m)) for m in ("accuracy", "nll")}
            parts.append(
                f"{text}, {prior}: {shown(*gap['accuracy'], sign=True)} points and {shown(*gap['nll'], 2, sign=True)} nats"
            )
    taus = sorted({r.values["chosen"]["tau"] for kind in PRIORS for r in in_function_space(records, kind).values()})
    chosen = f" Leave-one-out chose a τ of {' or '.join(f'{tau:g}' for tau in taus)}." if taus else ""
    return f"In function space, against the mode: {'; '.join(parts)}.{chosen}"


def power(logarithms: Mapping[int, float]) -> str:
    """A median log10 of temperatures as text; of an even number the colder one of the middle."""
    if not logarithms:
        return "–"
    found = statistics.median_low(logarithms.values())
    return "none" if found == COLDER else f"{10**found:g}"
