"""Coverage and size of both ways by set and number of labels, and both in a figure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.sets.reading import WAYS, coverage, grouped, labels, of, smaller, tasks


def tables(records: Sequence[Record]) -> list[Table]:
    return [_both(records, n) for n in labels(records)] + ([_groups(records)] if grouped(records) else [])


def _both(records: Sequence[Record], count: int) -> Table:
    own = [task for task in tasks(records) if task[1] == count]
    rows = [[t[0], *(_shown(records, t, way) for way in WAYS), f"{smaller(records, t):+.0%}"] for t in own]
    means = [f"{coverage(records, way, own).mean:.1%}" for way in WAYS]
    rows.append(["mean", *means, f"{mean(smaller(records, t) for t in own):+.0%}"])
    title = (
        f"{count} labels: coverage / mean size (classes in a set; length of an interval in deviations of the target)"
    )
    return Table(title, ["data", *WAYS, "smaller than split"], rows)


def _groups(records: Sequence[Record]) -> Table:
    ways = ("library", "without groups", "split")
    rows = [[t[0], str(t[1]), *(_shown(records, t, way) for way in ways)] for t in grouped(records)]
    columns = ["data", "labels", "library, given the groups", "library, without them", "split by groups"]
    return Table("Examples that belong together: coverage / mean size", columns, rows)


def _shown(records: Sequence[Record], task: tuple[str, int], way: str) -> str:
    return f"{mean(of(records, task, way, 'coverage')):.1%} / {mean(of(records, task, way, 'size')):.2f}"


def draw(records: Sequence[Record]) -> Figure:
    names = list(dict.fromkeys(name for name, _ in tasks(records)))
    figure = Figure(figsize=(9, 1.4 + 0.22 * len(names)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    shapes = dict(zip(labels(records), "osv", strict=False))
    for task in tasks(records):
        place = names.index(task[0])
        for way, colour in (("library", "#0072b2"), ("split", "#8a8a8b")):
            left.plot([mean(of(records, task, way, "coverage"))], [place], shapes[task[1]], color=colour, ms=4)
        right.plot([1 - smaller(records, task)], [place], shapes[task[1]], color="#0072b2", ms=4)
    for n, shape in shapes.items():
        right.plot([], [], shape, color="#0072b2", ms=4, label=f"{n} labels")
    left.axvline(records[0].arguments["coverage"], color="0.6", lw=1)
    right.axvline(1, color="0.6", lw=1)
    left.set_yticks(range(len(names)), names, fontsize=8)
    left.invert_yaxis()
    left.set(xlabel="coverage (blue: library; grey: split)")
    right.set(xlabel="mean size, relative to split conformal")
    right.legend(fontsize=8, frameon=False)
    for axis in (left, right):
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    return figure
