"""NLL by set, labels and method, paired by seed; labels that a rule of asking needs; the verdict line by line."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval, paired, shown
from posterity_studies.shared.labelled import NAMED, REPORTED
from posterity_studies.studies.heads.methods import RIVALS

NAMES, SHUFFLED, OURS = "names", "shuffled names", "ours"
SETS = [name for sets in REPORTED.values() for name in sets]
MODALITY = {name: kind for kind, sets in REPORTED.items() for name in sets}
FEWER, FACTOR = 0.25, 1.5
"""Labels that asking was to save, and how near the stated worth was to come."""
GOALS = {1: 0.15, 2: 0.15, 5: 0.10}
"""How far below the best rival's NLL names were to be, by labels a class."""
Sample = dict[int, float]


@dataclass(frozen=True)
class Results:
    """NLL by (set, labels a class), method and seed; CPU seconds likewise."""

    nll: Mapping[tuple[str, int], Mapping[str, Sample]]
    seconds: Mapping[tuple[str, int], Mapping[str, Sample]]

    def shots(self) -> list[int]:
        return sorted({shots for name, shots in self.nll if name in SETS})

    def sets(self, shots: int) -> list[str]:
        return [name for name in SETS if (name, shots) in self.nll]

    def mean(self, name: str, shots: int, method: str) -> float:
        return statistics.mean(self.nll[name, shots][method].values())

    def gap(self, name: str, shots: int, method: str, base: str) -> Interval:
        found = self.nll[name, shots]
        return paired(found[method], found.get(base, {}))

    def best(self, name: str, shots: int) -> str:
        """The rival with the least mean NLL."""
        return min((m for m in RIVALS if m in self.nll[name, shots]), key=lambda m: self.mean(name, shots, m))

    def average(self, sets: Iterable[str], shots: int, method: str, base: str) -> Interval:
        """The difference averaged over sets, paired by set: what another set like these would show."""
        return interval([g.mean for n in sets if not math.isnan((g := self.gap(n, shots, method, base)).mean)])


def results(records: Sequence[Record]) -> Results:
    """With one label a class a rival's temperature is the one that is best, on average, on all other sets."""
    nll: dict[tuple[str, int], dict[str, Sample]] = {}
    seconds: dict[tuple[str, int], dict[str, Sample]] = {}
    cells = [r for r in records if r.arguments["kind"] == "labels"]
    grids: dict[str, dict[str, dict[str, list[float]]]] = {}
    for r in cells:
        for method, found in r.values["methods"].items():
            if isinstance(found["nll"], Mapping):
                for t, value in found["nll"].items():
                    grids.setdefault(method, {}).setdefault(t, {}).setdefault(r.arguments["set"], []).append(value)
    for r in cells:
        where = r.arguments["set"], r.arguments["shots"]
        for method, found in r.values["methods"].items():
            value = found["nll"]
            if isinstance(value, Mapping):
                value = value[_settled(grids[method], r.arguments["set"])]
            nll.setdefault(where, {}).setdefault(method, {})[r.arguments["seed"]] = value
            seconds.setdefault(where, {}).setdefault(method, {})[r.arguments["seed"]] = found["seconds"]
    return Results(nll, seconds)


def _settled(grid: Mapping[str, Mapping[str, Sequence[float]]], without: str) -> str:
    def elsewhere(t: str) -> float:
        means = [statistics.mean(values) for name, values in grid[t].items() if name != without]
        return statistics.mean(means) if means else 0.0

    return min(grid, key=elsewhere)


def needed(labels: Sequence[int], nll: Sequence[float], goal: float) -> float | None:
    """Labels at which a curve first reaches a goal, between its points; None if it does not."""
    for i, value in enumerate(nll):
        if value <= goal:
            if i == 0:
                return float(labels[0])
            share = (nll[i - 1] - goal) / (nll[i - 1] - value)
            return labels[i - 1] + share * (labels[i] - labels[i - 1])
    return None


def asked(records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """By set and rule: labels for the NLL that random ends with, over those that random had. 1 where it is not reached."""
    curves: dict[str, dict[str, list[tuple[Sequence[int], Sequence[float]]]]] = {}
    for r in records:
        if r.arguments["kind"] == "asking":
            for rule, found in r.values["rules"].items():
                curves.setdefault(r.arguments["set"], {}).setdefault(rule, []).append((found["labels"], found["nll"]))
    shares: dict[str, dict[str, float]] = {}
    for name, rules in curves.items():
        means = {rule: _mean_curve(found) for rule, found in rules.items()}
        goal, whole = means["random"][1][-1], means["random"][0][-1]
        shares[name] = {
            rule: (needed(*curve, goal) or whole) / whole for rule, curve in means.items() if rule != "random"
        }
    return shares


def _mean_curve(found: list[tuple[Sequence[int], Sequence[float]]]) -> tuple[list[int], list[float]]:
    length = min(len(nll) for _, nll in found)
    return list(found[0][0][:length]), [statistics.mean(nll[i] for _, nll in found) for i in range(length)]


def factors(records: Sequence[Record]) -> list[float]:
    """How far the stated worth of as many labels again was from what they were worth, as a factor of at least 1."""
    pairs = [(r.values["said"], r.values["was"]) for r in records if r.arguments["kind"] == "worth"]
    return [max(said / was, was / said) if said > 0 and was > 0 else math.inf for said, was in pairs]


@dataclass(frozen=True)
class Line:
    """One thing that was asked for: whether it holds, and the figures."""

    asked: str
    holds: bool
    found: str


def lines(records: Sequence[Record]) -> list[Line]:
    """All that was asked for, where there are results."""
    found = results(records)
    made = []
    if found.shots():
        made += [_never_worse(found), *(_below(found, shots) for shots in found.shots() if len(found.sets(shots)) > 5)]
        made += [_time(found), *(_names(found, shots) for shots in found.shots()), _half(found), _control(found)]
    if shares := asked(records):
        saved = {rule: interval([1 - s[rule] for s in shares.values()]) for rule in next(iter(shares.values()))}
        draws = sum(r.arguments["kind"] == "asking" for r in records)
        text = ", ".join(f"{rule} {100 * g.mean:.1f} ± {100 * g.half:.0f} %" for rule, g in saved.items())
        said = f"Asking saves {100 * FEWER:.0f} % of the labels over {len(shares)} sets"
        made.append(Line(said, saved["ours"].mean >= FEWER, f"{text}; {draws} draws in all"))
    if near := factors(records):
        middle = statistics.median(near)
        made.append(
            Line(f"`worth` within a factor {FACTOR} in the median", middle <= FACTOR, f"{middle:.2f} of {len(near)}")
        )
    return made


def _never_worse(found: Results) -> Line:
    worse, count = [], 0
    for shots in found.shots():
        for name in found.sets(shots):
            best = found.best(name, shots)
            gap = found.gap(name, shots, OURS, best)
            count += 1
            if gap.low > 0:
                worse.append(f"{name} {shots} ({best} {shown(*gap, 3, True)})")
    text = f"{count - len(worse)} of {count} tasks" + (f"; above on {', '.join(worse)}" if worse else "")
    return Line("NLL not significantly above the best rival of each task (chosen in hindsight)", not worse, text)


def _below(found: Results, shots: int) -> Line:
    gaps = {m: found.average(found.sets(shots), shots, OURS, m) for m in RIVALS}
    gaps = {m: g for m, g in gaps.items() if not math.isnan(g.mean)}
    text = "; ".join(f"{m} {shown(*g, 3, True)}" for m, g in gaps.items())
    return Line(
        f"NLL below each rival on average, {shots} labels a class", all(g.mean < 0 for g in gaps.values()), text
    )


def _time(found: Results) -> Line:
    ratios = [
        statistics.mean(s[OURS].values()) / statistics.mean(s["logistic"].values())
        for (name, shots), s in found.seconds.items()
        if shots > 1 and name in SETS
    ]
    text = f"{statistics.median(ratios):.2f} in the median, {max(ratios):.2f} at most"
    return Line("CPU time at most twice that of cross-validated logistic regression", max(ratios) <= 2, text)


def _leads(found: Results, shots: int, method: str = NAMES) -> dict[str, Interval]:
    """NLL with names less the best rival's, as a share of it."""
    made = {}
    for name in (n for n in found.sets(shots) if n in NAMED):
        best = found.best(name, shots)
        gap, base = found.gap(name, shots, method, best), found.mean(name, shots, best)
        made[name] = Interval(gap.mean / base, gap.half / base)
    return made


def _names(found: Results, shots: int) -> Line:
    leads = _leads(found, shots)
    mean = statistics.mean(g.mean for g in leads.values()) if leads else math.nan
    text = ", ".join(f"{name} {100 * g.mean:+.0f} ± {100 * g.half:.0f} %" for name, g in leads.items())
    goal = GOALS.get(shots)
    if goal is None:
        return Line(
            f"Names not significantly above the best rival, {shots} labels",
            all(g.low <= 0 for g in leads.values()),
            text,
        )
    asked_for = f"NLL with names {100 * goal:.0f} % below the best rival's, {shots} labels a class"
    holds = bool(leads) and mean <= -goal and interval([g.mean for g in leads.values()]).high < 0
    return Line(asked_for, holds, f"{100 * mean:+.0f} % on average: {text}")


def _half(found: Results) -> Line:
    """Names with half the labels beside the best rival, set by set and on average."""
    said, ours, theirs = [], [], []
    for name in (n for n in NAMED if (n, 1) in found.nll and (n, 2) in found.nll):
        ours.append(found.mean(name, 1, NAMES))
        theirs.append(found.mean(name, 2, found.best(name, 2)))
        said.append(f"{name} {ours[-1]:.2f} and {theirs[-1]:.2f}")
    holds = bool(ours) and statistics.mean(ours) <= statistics.mean(theirs)
    return Line(
        "Names with one label a class beside the best rival with two: at or below on average", holds, "; ".join(said)
    )


def _control(found: Results) -> Line:
    gaps = [(n, s, found.gap(n, s, SHUFFLED, OURS)) for s in found.shots() for n in found.sets(s) if n in NAMED]
    worse = [f"{n} {s} ({shown(*g, 3, True)})" for n, s, g in gaps if g.low > 0]
    largest = max((g.mean for _, _, g in gaps), default=0.0)
    return Line(
        "Shuffled names cost nothing", not worse, f"{largest:+.4f} nats at most" + "".join(f"; {w}" for w in worse)
    )


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld if the head is below each rival on average and names reach what was asked of them."""
    said = lines(records)
    text = " ".join(f"{line.asked}: {'yes' if line.holds else 'no'} ({line.found})." for line in said)
    needed_lines = [line for line in said if line.asked.startswith(("NLL below each", "NLL with names"))]
    upheld = bool(needed_lines) and all(line.holds for line in needed_lines)
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, text)
