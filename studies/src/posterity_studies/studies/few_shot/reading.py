"""Measures by set, shots and method, paired by seed, and the verdict line by line."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval, paired, shown
from posterity_studies.shared.shots import SETS

SINGLE = ("probe", "tuned", "dropout", "laplace")
"""Rivals with one network that choose by a validation set."""
LEAD, LARGEST = 0.10, 0.40
"""How far below the probe's NLL ours was asked to be, as a share of it."""
AUROC = (0.78, 0.99)
ENOUGH = 5
"""Seeds that a setting needs before anything is said for it."""
HEAD_SIZE = 96
"""Pixels a side of the pictures that the verdict is about; other sizes are shown beside them."""


@dataclass(frozen=True, order=True)
class Setting:
    """So many pictures a class of one set, at one size."""

    size: int
    name: str
    shots: int

    def __str__(self) -> str:
        return f"{SETS.get(self.name, self.name)}, {self.shots} shots"


@dataclass(frozen=True)
class Results:
    """Measures by setting, method and seed."""

    found: Mapping[Setting, Mapping[str, Mapping[int, Mapping[str, Any]]]]

    def settings(self, size: int | None = None) -> list[Setting]:
        """In the order of the sets; of one size of pictures, or of all."""
        order = {name: i for i, name in enumerate(SETS)}
        kept = [s for s in self.found if size is None or s.size == size]
        return sorted(kept, key=lambda s: (s.size, order.get(s.name, 99), s.shots))

    @property
    def sizes(self) -> list[int]:
        return sorted({s.size for s in self.found})

    @property
    def main_size(self) -> int:
        """The size that the verdict is about."""
        return HEAD_SIZE if HEAD_SIZE in self.sizes else self.sizes[0]

    def sample(self, setting: Setting, method: str, measure: str) -> dict[int, float]:
        seeds = self.found[setting].get(method, {})
        return {seed: float(values[measure]) for seed, values in seeds.items() if measure in values}

    def mean(self, setting: Setting, method: str, measure: str) -> float | None:
        sample = self.sample(setting, method, measure)
        return statistics.mean(sample.values()) if sample else None

    def difference(self, setting: Setting, ours: str, base: str, measure: str) -> Interval:
        return paired(self.sample(setting, ours, measure), self.sample(setting, base, measure))

    def average(self, settings: Iterable[Setting], ours: str, base: str, measure: str) -> Interval:
        """ours − base, averaged over the settings in which both took part, paired by seed."""
        gaps: dict[int, list[float]] = {}
        for setting in settings:
            one, two = (self.sample(setting, m, measure) for m in (ours, base))
            for seed in one.keys() & two.keys():
                gaps.setdefault(seed, []).append(one[seed] - two[seed])
        full = max((len(values) for values in gaps.values()), default=0)
        return interval([statistics.mean(values) for values in gaps.values() if len(values) == full])


def results(records: Sequence[Record]) -> Results:
    """All records of heads, sorted."""
    found: dict[Setting, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for record in records:
        if record.arguments["kind"] != "heads":
            continue
        setting = Setting(record.arguments["size"], record.arguments["set"], record.arguments["shots"])
        for method, values in record.values["methods"].items():
            if "skipped" not in values:
                found.setdefault(setting, {}).setdefault(method, {})[record.arguments["seed"]] = values
    return Results(found)


@dataclass(frozen=True)
class Line:
    """One thing that was asked for: whether it holds, and the figures."""

    asked: str
    holds: bool
    found: str


def lines(records: Sequence[Record]) -> list[Line]:
    """All that was asked for, where there are seeds enough to say anything."""
    found = decided(results(records))
    asked: list[Callable[[Results], Line]] = [
        _below_the_probe, _single_networks, _unknown_above, _unknown_range, _all_labels, _edges,
    ]  # fmt: skip
    return [ask(found) for ask in asked] if found.found else []


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld if NLL is below the probe's on every set and ahead of all single networks on average, as the AUROC is."""
    found, said = results(records), lines(records)
    text = " ".join(f"{line.asked}: {'yes' if line.holds else 'no'} ({line.found})." for line in said)
    few = [f"{s} at {s.size} px" for s in found.settings() if s not in decided(found).found]
    if few:
        text += f" Fewer than {ENOUGH} seeds yet, and not counted: {'; '.join(few)}."
    upheld = bool(said) and all(line.holds for line in said[:3])
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, text.strip())


def decided(found: Results) -> Results:
    """Settings in which ours and the probe have seeds enough."""

    def seeds(setting: Setting) -> int:
        return len(found.sample(setting, "ours", "nll").keys() & found.sample(setting, "probe", "nll").keys())

    return Results({s: methods for s, methods in found.found.items() if seeds(s) >= ENOUGH})


def _leads(found: Results) -> dict[Setting, float]:
    """How far our NLL is below the probe's, as a share of it."""
    leads = {}
    for setting in found.settings(found.main_size):
        base = found.mean(setting, "probe", "nll")
        gap = found.difference(setting, "ours", "probe", "nll").mean
        if base is not None and gap == gap:
            leads[setting] = -gap / base
    return leads


def _below_the_probe(found: Results) -> Line:
    leads = _leads(found)
    short = [f"{s} {100 * lead:.0f} %" for s, lead in leads.items() if lead < LEAD]
    text = f"{100 * min(leads.values()):.0f} to {100 * max(leads.values()):.0f} % below" if leads else "no results"
    text += f"; less than that on {', '.join(short)}" if short else ""
    asked = f"NLL below the validated probe's by {100 * LEAD:.0f} to {100 * LARGEST:.0f} % on every set"
    return Line(asked, bool(leads) and not short, text)


def _single_networks(found: Results) -> Line:
    settings = found.settings(found.main_size)
    said, holds = [], True
    for method in SINGLE:
        gaps = {m: found.average(settings, "ours", method, m) for m in ("nll", "ece")}
        if gaps["nll"].mean != gaps["nll"].mean:
            continue
        holds &= all(gap.mean <= 0 for gap in gaps.values())
        said.append(f"{method} {shown(*gaps['nll'], 3, True)} and {shown(*gaps['ece'], 3, True)}")
    asked = "NLL and ECE at or below every single network's, on average over sets"
    return Line(asked, holds and bool(said), "ours minus theirs: " + "; ".join(said))


def _unknown_above(found: Results) -> Line:
    gap = found.average(found.settings(found.main_size), "ours", "probe", "auroc")
    return Line(
        "AUROC of CIFAR-10 above the probe's on average", gap.low > 0, f"ours minus its: {shown(*gap, 3, True)}"
    )


def _unknown_range(found: Results) -> Line:
    settings = found.settings(found.main_size)
    means = {s: mean for s in settings if (mean := found.mean(s, "ours", "auroc")) is not None}
    short = [f"{s} {mean:.3f}" for s, mean in means.items() if mean < AUROC[0]]
    text = f"{min(means.values()):.3f} to {max(means.values()):.3f}" if means else "no results"
    text += f"; below it: {', '.join(short)}" if short else ""
    return Line(f"AUROC of CIFAR-10 from {AUROC[0]:.2f} to {AUROC[1]:.2f}", bool(means) and not short, text)


def _all_labels(found: Results) -> Line:
    settings = found.settings(found.main_size)
    gap = found.average(settings, "ours", "cross", "nll")
    unknown = found.average(settings, "ours", "cross", "auroc")
    seconds = {
        m: statistics.mean([v for s in settings if (v := found.mean(s, m, "seconds")) is not None] or [float("nan")])
        for m in ("ours", "cross")
    }
    text = (
        f"NLL {shown(*gap, 3, True)}, AUROC {shown(*unknown, 3, True)}; CPU seconds {seconds['ours']:.1f} against "
        f"{seconds['cross']:.1f}"
    )
    return Line("Beside a probe cross-validated in five folds on all labels: NLL at or below", gap.mean <= 0, text)


def _edges(found: Results) -> Line:
    flags: dict[str, list[bool]] = {}
    for setting in found.found:
        for method, seeds in found.found[setting].items():
            flags.setdefault(method, []).extend(bool(v["edge"]) for v in seeds.values() if "edge" in v)
    at = {m: sum(f) for m, f in flags.items() if sum(f)}
    total = sum(map(len, flags.values()))
    text = f"{sum(at.values())} of {total}" + (f": {', '.join(f'{m} {n}' for m, n in at.items())}" if at else "")
    return Line("No choice at the edge of its grid", not at, text)
