"""Coverage and size of every way by set, and both in a figure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.sets.reading import WAYS, coverage, of, smaller, tasks


def tables(records: Sequence[Record]) -> list[Table]:
    rows = []
    for task in tasks(records):
        parts = [
            f"{mean(of(records, task, way, 'coverage')):.1%} / {mean(of(records, task, way, 'size')):.2f}"
            for way in WAYS
        ]
        rows.append([task[0], str(task[1]), *parts, f"{smaller(records, task, 'CV+'):+.0%}"])
    means = [f"{coverage(records, way).mean:.1%}" for way in WAYS]
    rows.append(["mean", "", *means, f"{mean(smaller(records, task, 'CV+') for task in tasks(records)):+.0%}"])
    title = "Coverage / mean size (classes in a set; length of an interval in deviations of the target)"
    return [Table(title, ["data", "labels", *WAYS, "CV+ smaller than split"], rows)]


def draw(records: Sequence[Record]) -> Figure:
    found = tasks(records)
    figure = Figure(figsize=(9, 1.2 + 0.2 * len(found)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    colours = {"CV+": "#0072b2", "CV minmax": "#009e73", "split": "#8a8a8b"}
    for way, colour in colours.items():
        left.plot(
            [mean(of(records, t, way, "coverage")) for t in found],
            range(len(found)),
            "o",
            color=colour,
            ms=4,
            label=way,
        )
        right.plot([1 - smaller(records, t, way) for t in found], range(len(found)), "o", color=colour, ms=4)
    left.axvline(records[0].arguments["coverage"], color="0.6", lw=1)
    left.set_yticks(range(len(found)), [f"{name}, {n}" for name, n in found], fontsize=7)
    left.invert_yaxis()
    left.set(xlabel="coverage")
    left.legend(fontsize=8)
    right.set(xlabel="mean size, relative to split conformal")
    for axis in (left, right):
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    return figure
