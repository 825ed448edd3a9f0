"""NLL by set and method, paired by split; what was asked and reached, line by line."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval, paired, shown
from posterity_studies.shared.labelled.numbers import REGRESSIONS, WITH_CLASSES
from posterity_studies.studies.tables.methods import RIVALS

OURS, PROCESS = "ours", "Gaussian process"
FAMILIES = {"classes": tuple(WITH_CLASSES), "regressions": tuple(REGRESSIONS)}
NEAR, TIMES = 0.02, 3.0
"""Nats to the best candidate in hindsight, and CPU time of the process, that were asked for."""
Sample = dict[int, float]
Measures = Mapping[str, Mapping[str, Sample]]


@dataclass(frozen=True)
class Results:
    """By set, method and split."""

    nll: Measures
    second: Measures
    """Accuracy, or RMSE in standard deviations of the training targets."""
    seconds: Measures
    candidates: Measures
    """NLL of each candidate alone."""

    def sets(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.nll]

    def mean(self, name: str, method: str) -> float:
        return statistics.mean(self.nll[name][method].values())

    def rivals(self, name: str) -> list[str]:
        return [method for method in RIVALS if method in self.nll[name]]

    def best(self, name: str) -> str:
        """The rival with the least mean NLL: known in hindsight alone."""
        return min(self.rivals(name), key=lambda method: self.mean(name, method))

    def gap(self, name: str, method: str) -> Interval:
        return paired(self.nll[name][OURS], self.nll[name][method])

    def to_candidate(self, name: str) -> Interval:
        """To the candidate that is best on average over splits."""
        found = self.candidates[name]
        return paired(self.nll[name][OURS], min(found.values(), key=lambda each: statistics.mean(each.values())))

    def average(self, names: Iterable[str], method: str) -> Interval:
        """Over sets, of differences paired by split."""
        return interval([self.gap(name, method).mean for name in self.sets(names) if method in self.nll[name]])

    def ratio(self, name: str) -> float:
        """CPU time of ours over the process's."""
        ours, process = (statistics.mean(self.seconds[name][method].values()) for method in (OURS, PROCESS))
        return ours / process


def results(records: Sequence[Record], who: str = "all") -> Results:
    found: list[dict[str, dict[str, Sample]]] = [{}, {}, {}, {}]
    for r in records:
        if r.arguments["who"] != who:
            continue
        name, split, values = r.arguments["set"], r.arguments["split"], r.values
        for method, measured in values["methods"].items():
            second = measured["accuracy"] if values["classes"] else measured["rmse"]
            for into, value in zip(found, (measured["nll"], second, measured["seconds"]), strict=False):
                into.setdefault(name, {}).setdefault(method, {})[split] = value
        alone = values["candidates"] if who == "all" else {k: v for k, v in values["methods"].items() if k != OURS}
        for candidate, measured in alone.items():
            found[3].setdefault(name, {}).setdefault(candidate, {})[split] = measured["nll"]
    return Results(*found)


@dataclass(frozen=True)
class Line:
    """One thing that was asked for: whether it holds, and the figures."""

    asked: str
    holds: bool
    found: str


def lines(records: Sequence[Record]) -> list[Line]:
    """All that was asked for, where there are results."""
    found = results(records)
    names = found.sets(name for sets in FAMILIES.values() for name in sets)
    if not names:
        return []
    made = [_never_worse(found, names)]
    for family, sets in FAMILIES.items():
        if own := found.sets(sets):
            made += [_first(found, family, own), _near(found, family, own)]
    return [*made, _time(found, names)]


def _never_worse(found: Results, names: Sequence[str]) -> Line:
    worse = []
    for name in names:
        best = found.best(name)
        gap = found.gap(name, best)
        if gap.low > 0:
            worse.append(f"{name} ({best} {shown(*gap, 3, True)})")
    text = f"{len(names) - len(worse)} of {len(names)} sets" + (f"; above on {', '.join(worse)}" if worse else "")
    return Line("NLL not significantly above the best single rival of each set (chosen in hindsight)", not worse, text)


def _first(found: Results, family: str, names: Sequence[str]) -> Line:
    gaps = {m: found.average(names, m) for m in RIVALS if any(m in found.nll[name] for name in names)}
    text = "; ".join(f"{method} {shown(*gap, 3, True)}" for method, gap in gaps.items())
    return Line(f"First on average, {family}", all(gap.mean < 0 for gap in gaps.values()), text)


def _near(found: Results, family: str, names: Sequence[str]) -> Line:
    gaps = [found.to_candidate(name).mean for name in names]
    text = f"{shown(*interval(gaps), 3, True)}, {max(gaps):+.3f} at most"
    asked = f"Within {NEAR} nats of the best candidate in hindsight on average, {family}"
    return Line(asked, statistics.mean(gaps) <= NEAR, text)


def _time(found: Results, names: Sequence[str]) -> Line:
    ratios = {name: found.ratio(name) for name in names}
    longest = max(ratios, key=lambda name: ratios[name])
    text = f"{statistics.median(ratios.values()):.1f} in the median, {ratios[longest]:.1f} at most ({longest})"
    return Line(f"CPU time at most {TIMES:g} times the Gaussian process's", ratios[longest] <= TIMES, text)


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld if all holds but, perhaps, the time."""
    said = lines(records)
    text = " ".join(f"{line.asked}: {'yes' if line.holds else 'no'} ({line.found})." for line in said)
    upheld = bool(said) and all(line.holds for line in said if not line.asked.startswith("CPU"))
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, text or "No table has been run yet.")
