"""Coverage and size by set, and whether left-out predictions beat a calibration split."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval

WAYS = ("CV+", "CV minmax", "split")
Task = tuple[str, int]


def tasks(records: Sequence[Record]) -> list[Task]:
    return list(dict.fromkeys((r.arguments["data"], r.arguments["examples"]) for r in records))


def of(records: Sequence[Record], task: Task, way: str, measure: str) -> list[float]:
    return [r.values[way][measure] for r in records if (r.arguments["data"], r.arguments["examples"]) == task]


def coverage(records: Sequence[Record], way: str) -> Interval:
    """Over sets, each the mean of its draws."""
    return interval([mean(of(records, task, way, "coverage")) for task in tasks(records)])


def smaller(records: Sequence[Record], task: Task, way: str) -> float:
    """By how much sets are smaller than those of a split, of the same labels."""
    return 1 - mean(of(records, task, way, "size")) / mean(of(records, task, "split", "size"))


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where CV+ covers at least the nominal share less a point on average, with sets at least 15 % smaller."""
    nominal = records[0].arguments["coverage"]
    reached = {way: coverage(records, way).mean for way in WAYS}
    saved = {way: mean(smaller(records, task, way) for task in tasks(records)) for way in WAYS}
    least = min((mean(of(records, task, "CV+", "coverage")), task) for task in tasks(records))
    why = (
        f"At a nominal {nominal:.0%}, mean coverage over {len(tasks(records))} tasks: "
        + ", ".join(f"{way} {reached[way]:.1%}" for way in WAYS)
        + f" (least of CV+: {least[0]:.1%}, {least[1][0]} with {least[1][1]} labels). Mean size below split conformal's: "
        + ", ".join(f"{way} {saved[way]:.0%}" for way in WAYS[:-1])
        + ". The theorems guarantee 90 % for minmax and split, and for CV+ little more than 80 %."
    )
    held = reached["CV+"] >= nominal - 0.01 and saved["CV+"] >= 0.15
    return Verdict(Outcome.ours if held else Outcome.unsupported, why)
