"""Measures by setting and method, paired differences, and the verdict line by line."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, paired, shown

SINGLE = (
    "map",
    "temperature",
    "l2sp",
    "dropout",
    "laplace marglik",
    "laplace gridsearch",
    "laplace all",
    "ivon",
)
"""Rivals with one network."""

ECE, FROM = 0.10, 28
"""The calibration error that is asked for, and from how many examples on."""
WITHIN = 0.03
"""How far above an ensemble the NLL may lie where there is no source."""
AUROC = 0.05
ENOUGH = 5
"""Wearers, seeds or splits that a setting needs before anything is said for it."""

Unit = tuple[int, int]
"""What is paired: (wearer, unknown exercise), (seed, 0) or (split, 0). The first number is what intervals are over."""
Sample = Mapping[Unit, float]


@dataclass(frozen=True)
class Setting:
    """One kind of task of one size."""

    kind: str
    name: str
    size: str

    def __str__(self) -> str:
        match self.kind:
            case "watch":
                return f"watch, {self.size} window{'' if self.size == '1' else 's'}"
            case "transfer":
                return f"{self.name}, {self.size} a class"
            case "scratch":
                return f"{self.name}, {int(self.size):,}"
        return self.name

    @property
    def after_a_source(self) -> bool:
        return self.kind in ("watch", "transfer")


@dataclass(frozen=True)
class Results:
    """All records, by setting, method and unit."""

    found: Mapping[Setting, Mapping[str, Mapping[Unit, Mapping[str, Any]]]]
    examples: Mapping[Setting, float]

    @property
    def settings(self) -> list[Setting]:
        return list(self.found)

    def sample(self, setting: Setting, method: str, measure: str) -> dict[Unit, float]:
        units = self.found[setting].get(method, {})
        return {unit: float(values[measure]) for unit, values in units.items() if measure in values}

    def mean(self, setting: Setting, method: str, measure: str) -> float | None:
        """The mean over wearers, seeds or splits; None where the method took no part."""
        sample = _clustered(self.sample(setting, method, measure))
        return statistics.mean(sample.values()) if sample else None

    def difference(self, setting: Setting, ours: str, base: str, measure: str = "nll") -> Interval:
        """ours − base over the units that both have, averaged by wearer first."""
        one, two = self.sample(setting, ours, measure), self.sample(setting, base, measure)
        both = one.keys() & two.keys()
        return paired(_clustered({u: one[u] for u in both}), _clustered({u: two[u] for u in both}))


def results(records: Sequence[Record]) -> Results:
    found: dict[Setting, dict[str, dict[Unit, Mapping[str, Any]]]] = {}
    examples: dict[Setting, list[float]] = {}
    for record in records:
        name, unit = _placed(record.arguments)
        for size, methods in record.values.items():
            setting = Setting(record.arguments["kind"], name, size)
            examples.setdefault(setting, []).append(methods["examples"])
            for method, values in methods.items():
                if isinstance(values, Mapping) and "skipped" not in values:
                    found.setdefault(setting, {}).setdefault(method, {})[unit] = values
    order = {"watch": 0, "transfer": 1, "scratch": 2, "regression": 3}
    keys = sorted(found, key=lambda s: (order[s.kind], s.name, int(s.size) if s.size.isdigit() else 0))
    return Results({s: found[s] for s in keys}, {s: statistics.mean(examples[s]) for s in keys})


def _placed(arguments: Mapping[str, Any]) -> tuple[str, Unit]:
    match arguments["kind"]:
        case "watch":
            return "watch", (arguments["wearer"], arguments["unknown"])
        case "transfer":
            return f"{arguments['source']} → {arguments['target']}", (arguments["seed"], 0)
        case "scratch":
            return "Fashion-MNIST", (arguments["seed"], 0)
    return arguments["data"], (arguments["split"], 0)


def _clustered(sample: Sample) -> dict[int, float]:
    """One number a wearer: the mean over exercises. Seeds and splits stand for themselves."""
    groups: dict[int, list[float]] = {}
    for (cluster, _), value in sample.items():
        groups.setdefault(cluster, []).append(value)
    return {cluster: statistics.mean(values) for cluster, values in groups.items()}


@dataclass(frozen=True)
class Line:
    """One thing that was asked for: whether it holds, and the figures."""

    asked: str
    holds: bool
    found: str


def lines(records: Sequence[Record]) -> list[Line]:
    """All that was asked for, in the order of its weight."""
    found = results(records)
    asked: list[Callable[[Results], Line | None]] = [
        _never_worse, _single_networks, _calibrated, _ensemble, _learned, _unknown, _regressions,
    ]  # fmt: skip
    return [line for line in (ask(found) for ask in asked) if line is not None]


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld if the first two lines hold, never worse than plain training and ahead of single networks, on enough seeds."""
    found, few = lines(records), undecided(results(records))
    said = " ".join(f"{line.asked}: {'yes' if line.holds else 'no'} ({line.found})." for line in found)
    if few:
        names = ", ".join(f"{setting} ({count})" for setting, count in few.items())
        said = f"Too few seeds yet to say anything for the claim: {names}. So far: {said}"
    upheld = not few and all(line.holds for line in found[:2])
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, said)


def undecided(found: Results) -> dict[Setting, int]:
    """Settings with fewer wearers, seeds or splits than are enough, and how many they have of us and plain training."""
    counts = {}
    for setting in found.settings:
        both = found.sample(setting, "default", "nll").keys() & found.sample(setting, "map", "nll").keys()
        counts[setting] = len({cluster for cluster, _ in both})
    return {setting: count for setting, count in counts.items() if count < ENOUGH}


def _never_worse(found: Results) -> Line:
    gaps = {s: gap for s in found.settings if (gap := found.difference(s, "default", "map")).mean == gap.mean}
    worse = [f"{s} {shown(*gap, 3, True)}" for s, gap in gaps.items() if gap.low > 0]
    better = sum(gap.high < 0 for gap in gaps.values())
    text = f"significantly lower in {better} of {len(gaps)} settings, higher in {', '.join(worse) or 'none'}"
    return Line("NLL not significantly above plain training's anywhere", not worse, text)


def _single_networks(found: Results) -> Line:
    behind, total = [], 0
    for setting in found.settings:
        # Paired: a run that is not finished has other wearers and seeds for some than for others.
        gaps = {m: gap for m in SINGLE if (gap := found.difference(setting, "default", m).mean) == gap}
        if not gaps:
            continue
        total += 1
        worst = max(gaps, key=lambda m: gaps[m])
        if gaps[worst] >= 0:
            behind.append(f"{setting} ({worst} {gaps[worst]:+.3f})")
    ahead = total - len(behind)
    text = f"{ahead} of {total}" + (f"; not on {'; '.join(behind)}" if behind else "")
    return Line("NLL below every rival with one network in two thirds of the settings", 3 * ahead >= 2 * total, text)


def _calibrated(found: Results) -> Line | None:
    errors = {
        str(s): error
        for s in found.settings
        if found.examples[s] >= FROM and (error := found.mean(s, "default", "ece")) is not None
    }
    if not errors:
        return None
    worst = max(errors, key=lambda s: errors[s])
    over = [f"{s} {e:.3f}" for s, e in errors.items() if e > ECE]
    text = f"above it: {', '.join(over)}" if over else f"at most {errors[worst]:.3f}, on {worst}"
    return Line(f"ECE at most {ECE:.2f} from {FROM} examples on", not over, text)


def _ensemble(found: Results) -> Line:
    short = []
    gaps = {s: gap for s in found.settings if (gap := found.difference(s, "default", "ensemble").mean) == gap}
    for setting, gap in gaps.items():
        if gap >= 0 if setting.after_a_source else gap > WITHIN:
            short.append(f"{setting} {gap:+.3f}")
    text = f"{len(gaps) - len(short)} of {len(gaps)} settings" + (f"; not {', '.join(short)}" if short else "")
    return Line(f"NLL below the ensemble's after a source, within {WITHIN} nats elsewhere", not short, text)


def _learned(found: Results) -> Line | None:
    gaps = {s: found.difference(s, "default", "isotropic") for s in found.settings if s.after_a_source}
    if not gaps:
        return None
    above = [f"{s} {shown(*g, 3, True)}" for s, g in gaps.items() if g.mean >= 0]
    clear = sum(g.high < 0 for g in gaps.values())
    significant = [s for s, g in gaps.items() if g.low > 0]
    text = (
        f"lower in {len(gaps) - len(above)} of {len(gaps)} settings, beyond the interval in {clear}, above it beyond the "
        f"interval in {len(significant)}" + (f"; not lower: {', '.join(above)}" if above else "")
    )
    return Line("Learned prior's NLL below the isotropic prior's", not above and clear >= 3, text)


def _unknown(found: Results) -> Line | None:
    gaps = {s: found.difference(s, "default", "map", "auroc").mean for s in found.settings if s.kind != "regression"}
    known = {s: g for s, g in gaps.items() if g == g}
    if not known:
        return None
    lead = statistics.mean(known.values())
    least = min(known, key=lambda s: known[s])
    text = f"{lead:+.3f} on average over {len(known)} settings, least {known[least]:+.3f} on {least}"
    return Line(f"AUROC for unknown inputs above plain training's by {AUROC}", lead >= AUROC, text)


def _regressions(found: Results) -> Line | None:
    sets = [s for s in found.settings if s.kind == "regression"]
    if not sets:
        return None
    gaps = {(s, m): found.difference(s, "default", m) for s in sets for m in ("map", "laplace all")}
    above = [f"{s} {shown(*g, 3, True)} to {m}" for (s, m), g in gaps.items() if g.mean > 0]
    return Line(
        "Regression NLL at or below the mode's with noise and laplace-torch's on each set",
        not above,
        f"above: {', '.join(above)}" if above else "above on none",
    )
