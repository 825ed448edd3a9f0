"""Coverage and size by set, and whether left-out predictions beat a calibration split."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval

WAYS = ("library", "split")
Task = tuple[str, int]
"""A set and a number of labels."""


def tasks(records: Sequence[Record]) -> list[Task]:
    return list(dict.fromkeys((r.arguments["data"], r.arguments["examples"]) for r in records))


def labels(records: Sequence[Record]) -> list[int]:
    return sorted({n for _, n in tasks(records)})


def of(records: Sequence[Record], task: Task, way: str, measure: str) -> list[float]:
    return [r.values[way][measure] for r in records if (r.arguments["data"], r.arguments["examples"]) == task]


def grouped(records: Sequence[Record]) -> list[Task]:
    """Tasks whose examples belong together."""
    have = {(r.arguments["data"], r.arguments["examples"]) for r in records if "without groups" in r.values}
    return [task for task in tasks(records) if task in have]


def coverage(records: Sequence[Record], way: str, among: Sequence[Task]) -> Interval:
    """Over tasks, each the mean of its draws."""
    return interval([mean(of(records, task, way, "coverage")) for task in among])


def smaller(records: Sequence[Record], task: Task) -> float:
    """By how much sets are smaller than those of a split, of the same labels."""
    return 1 - mean(of(records, task, "library", "size")) / mean(of(records, task, "split", "size"))


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where coverage is at least the nominal less a point on average, with sets at least 15 % smaller."""
    nominal, every = records[0].arguments["coverage"], tasks(records)
    reached = {way: coverage(records, way, every).mean for way in WAYS}
    saved = mean(smaller(records, task) for task in every)
    least, (name, count) = min((mean(of(records, task, "library", "coverage")), task) for task in every)
    by_labels = ", ".join(
        f"{coverage(records, 'library', own).mean:.1%} and {mean(smaller(records, t) for t in own):.0%} with {n}"
        for n in labels(records)
        if (own := [t for t in every if t[1] == n])
    )
    why = (
        f"At a nominal {nominal:.0%}, mean coverage over {len(every)} tasks: library {reached['library']:.1%} (least: "
        f"{least:.1%}, {name} with {count} labels), split {reached['split']:.1%}. Sets are {saved:.0%} smaller than the split's "
        f"on average. By labels: {by_labels}."
    )
    if together := grouped(records):
        by_group, alone = (coverage(records, way, together).mean for way in ("library", "without groups"))
        why += f" Examples that belong together: {by_group:.1%} with their groups, {alone:.1%} without."
    held = reached["library"] >= nominal - 0.01 and saved >= 0.15
    return Verdict(Outcome.ours if held else Outcome.unsupported, why)
