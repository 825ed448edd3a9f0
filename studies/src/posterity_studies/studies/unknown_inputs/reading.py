"""AUROC by pair, the best rival of each, and the rule that the other settings choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval
from posterity_studies.shared.known_inputs import RIVALS, SETTINGS
from posterity_studies.studies.unknown_inputs.methods import RULES

Pair = tuple[str, str]
"""A setting and the inputs that are unknown in it."""
MARGIN = 0.01
ALARMS = (0.03, 0.08)
"""False-alarm rates that count as 5 %."""
NAMES = [str(rule) for rule in RULES]
NAMED = tuple(n for n in RIVALS if n.startswith("neighbours") or n in ("Mahalanobis", "energy", "max probability"))
"""Distance to neighbours in the last layer's features, Mahalanobis, energy, max probability."""


def pairs(records: Sequence[Record]) -> list[Pair]:
    have = {r.arguments["setting"] for r in records}
    return [(name, other) for name, setting in SETTINGS.items() if name in have for other in setting.others]


def of(records: Sequence[Record], setting: str, pick: Callable[[Record], float]) -> list[float]:
    """One number a seed."""
    return [pick(r) for r in records if r.arguments["setting"] == setting]


def auroc(records: Sequence[Record], pair: Pair, group: str, name: str) -> float:
    return mean(of(records, pair[0], lambda r: r.values[group][name][pair[1]]))


def library(records: Sequence[Record], pair: Pair, form: str = "library") -> float:
    """What a user gets, in one of three forms."""
    return mean(of(records, pair[0], lambda r: r.values[form]["auroc"][pair[1]]))


def best_rival(records: Sequence[Record], pair: Pair, among: Sequence[str] = tuple(RIVALS)) -> tuple[float, str]:
    """The best in hindsight, of all ten by default, for this very pair."""
    return max((auroc(records, pair, "rivals", name), name) for name in among)


def lead(records: Sequence[Record], pair: Pair) -> Interval:
    """The library's AUROC minus the best rival's, paired by seed."""
    name = best_rival(records, pair)[1]
    other = pair[1]
    return interval(
        of(records, pair[0], lambda r: r.values["library"]["auroc"][other] - r.values["rivals"][name][other])
    )


def alarms(records: Sequence[Record], setting: str, form: str = "library") -> Interval:
    return interval(of(records, setting, lambda r: r.values[form]["alarms"]))


def regrets(records: Sequence[Record], among: Sequence[Pair]) -> dict[str, float]:
    """How much each rule is behind the best rival, on average over pairs; a lead counts as nothing."""
    best = {pair: best_rival(records, pair)[0] for pair in among}
    return {name: mean(max(best[p] - auroc(records, p, "rules", name), 0.0) for p in among) for name in NAMES}


def chosen_without(records: Sequence[Record], setting: str | None) -> str:
    """The rule of least regret on all settled pairs but those of one setting."""
    among = [p for p in pairs(records) if SETTINGS[p[0]].settled and p[0] != setting] or pairs(records)
    found = regrets(records, among)
    return min(NAMES, key=found.__getitem__)


def left_one_out(records: Sequence[Record]) -> dict[str, str]:
    """For every setting the rule that the others chose; settings that took no part have the choice of all that did."""
    return {name: chosen_without(records, name) for name in dict.fromkeys(p[0] for p in pairs(records))}


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where the library is nowhere more than .01 behind the best rival, ahead of each on average, and alarms as asked."""
    every = pairs(records)
    behind = [p for p in every if lead(records, p).mean < -MARGIN]
    ours = mean(library(records, p) for p in every)
    theirs = {name: mean(auroc(records, p, "rivals", name) for p in every) for name in RIVALS}
    best = max(theirs, key=theirs.__getitem__)
    rates = {s: alarms(records, s).mean for s in dict.fromkeys(p[0] for p in every)}
    off = [f"{s} {rate:.1%}" for s, rate in rates.items() if not ALARMS[0] <= rate <= ALARMS[1]]
    rules = left_one_out(records)
    other = [p for p in every if auroc(records, p, "rules", rules[p[0]]) < best_rival(records, p)[0] - MARGIN]
    near = [p for p in every if library(records, p) < best_rival(records, p, NAMED)[0] - MARGIN]
    lost = "; ".join(
        f"{a} / {b} {library(records, (a, b)) - best_rival(records, (a, b), NAMED)[0]:+.3f}" for a, b in near
    )
    seeds = sorted({len({r.arguments["seed"] for r in records if r.arguments["setting"] == s}) for s in rates})
    why = (
        f"Seeds a setting: {' to '.join(map(str, {seeds[0]: 0, seeds[-1]: 0}))}. Of neighbours, Mahalanobis, energy and max "
        f"probability the best in hindsight is at most {MARGIN} ahead on {len(every) - len(near)} of {len(every)} pairs"
        + (f" (further on {lost}). " if near else ". ")
        + f"Mean AUROC {ours:.3f}; the best single rival, {best}, {theirs[best]:.3f}. "
        f"{len(every) - len(behind)} pairs are at most {MARGIN} behind the best of ten rivals in hindsight"
        + (
            f"; further behind: {', '.join(f'{a} / {b} {lead(records, (a, b)).mean:+.3f}' for a, b in behind)}. "
            if behind
            else ". "
        )
        + f"With the rule that the other settings choose: {len(every) - len(other)} pairs. False alarms at a nominal 5 %: "
        f"{min(rates.values()):.1%} to {max(rates.values()):.1%}"
        + (f"; outside 3–8 %: {', '.join(off)}." if off else ".")
    )
    held = not behind and not off and ours > theirs[best]
    return Verdict(Outcome.ours if held else Outcome.unsupported, why)
