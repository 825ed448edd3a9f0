"""The paper's table and ours in one form, NLL likewise, and both as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared import published
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.shared.picture_streams import SETS
from posterity_studies.studies.continual_large.methods import NAMES
from posterity_studies.studies.continual_large.reading import Runs, ahead, average, by_method, streams


def tables(records: Sequence[Record]) -> list[Table]:
    """Accuracy beside the paper's, NLL, differences, temperatures and cost."""
    made = []
    for stream in streams(records):
        runs = by_method(records, stream)
        made += [
            _measure(runs, stream, "accuracy", f"Accuracy in %, stream {stream}"),
            _measure(runs, stream, "nll", f"NLL in mean nats, stream {stream}"),
            _differences(runs, stream),
            _inside(runs, stream),
        ]
    rows = [
        [NAMES[name], *(f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in published.STREAM[name])]
        for name in NAMES
    ]
    made.append(Table("The paper's table (accuracy in %, Washington RGB-D)", ["", *published.TASKS, "average"], rows))
    return made


def tasks(runs: Runs, stream: str) -> list[str]:
    """The names of a stream's tasks."""
    if stream == "sets":
        return list(SETS.values())
    if stream == "washington":
        return list(published.TASKS)
    count = max((len(r.values["accuracy"]) for by_seed in runs.values() for r in by_seed.values()), default=0)
    return [f"task {k + 1}" for k in range(count)]


def _measure(runs: Runs, stream: str, measure: str, title: str) -> Table:
    factor, digits = (100, 1) if measure == "accuracy" else (1, 3)
    columns, rows = tasks(runs, stream), []
    for name, by_seed in runs.items():
        row = [NAMES[name]]
        for k in range(len(columns)):
            row.append(shown(*interval([factor * r.values[measure][k] for r in by_seed.values()]), digits))
        rows.append([*row, shown(*interval([average(r, measure) for r in by_seed.values()]), digits)])
    return Table(title, ["", *columns, "average"], rows)


def _differences(runs: Runs, stream: str) -> Table:
    rows = [
        [
            NAMES[rival],
            *(shown(*ahead(runs, rival, measure), digits, True) for measure, digits in (("accuracy", 1), ("nll", 3))),
        ]
        for rival in runs
        if rival != "learned" and "learned" in runs
    ]
    return Table(f"The learned prior minus others, paired by seed, stream {stream}", ["", "points", "NLL"], rows)


def _inside(runs: Runs, stream: str) -> Table:
    rows = []
    for name, by_seed in runs.items():
        records = list(by_seed.values())
        chosen = sorted({t for r in records for t in r.values["temperatures"] if t is not None})
        rows.append(
            [
                NAMES[name],
                str(len(records)),
                ", ".join(f"{t:g}" for t in chosen) or "–",
                shown(*interval([100 * statistics.mean(r.values["ece"]) for r in records]), 1),
                f"{sum(r.values['changed'] for r in records)} of {sum(sum(r.values['tested']) for r in records)}",
                f"{statistics.mean(r.values['cpu'] for r in records) / 60:.1f}",
            ]
        )
    columns = ["", "seeds", "temperatures chosen", "ECE %", "predictions that changed", "CPU minutes a seed"]
    return Table(f"Behind the figures, stream {stream}", columns, rows)


def draw(records: Sequence[Record]) -> Figure:
    """Accuracy and NLL of every learner by task, in the order in which tasks come."""
    found = streams(records) or [""]
    figure = Figure(figsize=(10, 0.8 + 3.4 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), 2, squeeze=False)
    for row, stream in zip(axes, found, strict=True):
        runs = by_method(records, stream)
        names = [*tasks(runs, stream), "average"]
        for axis, measure, label in ((row[0], "accuracy", "accuracy in %"), (row[1], "nll", "NLL")):
            for j, (name, by_seed) in enumerate(runs.items()):
                factor = 100 if measure == "accuracy" else 1
                shift = 0.12 * (j - (len(runs) - 1) / 2)
                bayes = name in ("learned", "mean", "zero")
                for k in range(len(names)):
                    values = [
                        average(r, measure) if k == len(names) - 1 else factor * r.values[measure][k]
                        for r in by_seed.values()
                    ]
                    axis.plot(
                        k + shift, statistics.mean(values), "o" if bayes else "s", color=f"C{j}", markersize=5,
                        label=NAMES[name] if k == 0 else None,
                    )  # fmt: skip
            axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
            axis.set_ylabel(label)
            axis.grid(axis="y", color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure
