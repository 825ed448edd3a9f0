"""Measures by set and method, paired by seed, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval, paired, shown
from posterity_studies.shared.shots import SETS

ENOUGH = 3
"""Seeds that a set needs before anything is said of it."""

Found = Mapping[str, Mapping[str, Mapping[int, Mapping[str, Any]]]]
"""Measures by set, method and seed."""


def results(records: Sequence[Record]) -> Found:
    """All records, sorted; sets in the order in which studies have them."""
    order = {name: i for i, name in enumerate(SETS)}
    found: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for record in sorted(records, key=lambda r: order.get(r.arguments["set"], 99)):
        for method, values in record.values["methods"].items():
            by_seed = found.setdefault(record.arguments["set"], {}).setdefault(method, {})
            by_seed[record.arguments["seed"]] = values
    return found


def sample(found: Found, name: str, method: str, measure: str) -> dict[int, float]:
    """A measure by seed."""
    seeds = found[name].get(method, {})
    return {seed: float(values[measure]) for seed, values in seeds.items() if measure in values}


def difference(found: Found, name: str, ours: str, base: str, measure: str) -> Interval:
    """ours − base on one set, paired by seed."""
    return paired(sample(found, name, ours, measure), sample(found, name, base, measure))


def average(found: Found, ours: str, base: str, measure: str) -> Interval:
    """ours − base over all sets and seeds: every seed draws classes and pictures of its own from every set."""
    gaps = []
    for name in found:
        one, two = (sample(found, name, m, measure) for m in (ours, base))
        gaps += [one[seed] - two[seed] for seed in sorted(one.keys() & two.keys())]
    return interval(gaps)


def verdict(records: Sequence[Record]) -> Verdict:
    """Reproduced: the learned prior's NLL is below the isotropic one's beyond the interval on most sets, and above it nowhere.

    Partly: below it on average over sets and seeds, beyond the interval. Nothing is said of a set with fewer than three seeds.
    """
    found = results(records)
    seeds = {name: len(sample(found, name, "learned", "nll")) for name in found}
    gaps = {n: difference(found, n, "learned", "isotropic", "nll") for n in found if seeds[n] >= ENOUGH}
    below, above = sum(gap.high < 0 for gap in gaps.values()), sum(gap.low > 0 for gap in gaps.values())
    overall = average(found, "learned", "isotropic", "nll")
    said = "; ".join(f"{SETS.get(name, name)} {shown(*gap, 3, True)}" for name, gap in gaps.items())
    rivals = {
        "head": "the exact head alone",
        "probe": "the probe",
        "plain": "plain fine-tuning",
        "l2-sp": "L2-SP",
        "map": "the mode under the learned prior",
        "paper": "the paper's recipe, reduced",
    }
    leads = {text: average(found, "learned", base, "nll") for base, text in rivals.items()}
    others = ", ".join(f"{shown(*gap, 3, True)} to {text}" for text, gap in leads.items() if gap.mean == gap.mean)
    why = ("" if gaps else "Too few draws to decide anything. ") + (
        "NLL with the learned prior minus that with the isotropic one of the same family, paired by seed: "
        f"{said or f'no set has {ENOUGH} seeds'}; over all {sum(seeds.values())} draws {shown(*overall, 3, True)}. "
        f"Beyond the interval below it on {below} of {len(gaps)} sets, above on {above}. "
        f"On average {others or 'no other method yet'}. Choices at the edge of a grid: {_edges(found)}."
    )
    if gaps and 2 * below > len(gaps) and not above:
        return Verdict(Outcome.reproduced, why)
    return Verdict(Outcome.partly if overall.high < 0 else Outcome.not_reproduced, why)


def _edges(found: Found) -> str:
    """How many choices are at the edge of a grid, and whose."""
    at = {method: 0 for methods in found.values() for method in methods}
    total = 0
    for methods in found.values():
        for method, seeds in methods.items():
            flags = [bool(values["edge"]) for values in seeds.values() if "edge" in values]
            at[method] += sum(flags)
            total += len(flags)
    named = ", ".join(f"{method} {count}" for method, count in at.items() if count)
    return f"{sum(at.values())} of {total}" + (f" ({named})" if named else "")
