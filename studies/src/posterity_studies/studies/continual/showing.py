"""A table for each stream, and every learner's accuracy and NLL as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.shared.published import OTHERS
from posterity_studies.studies.continual.methods import DECAYS, INCREMENTAL, NAMES, SCALED
from posterity_studies.studies.continual.reading import FULL, ahead, by_method, gain, where

BASE = "bpnn mean"

APART = {NAMES[name] for name in ("fine-tuning", "ewc", "online laplace")} | {f"PNN, weight decay {DECAYS[-1]:g}"}


def tables(records: Sequence[Record]) -> list[Table]:
    made = []
    few = [r for r in records if r.arguments["protocol"] == "small"]
    for source, target, shots in sorted({where(r) for r in few if r.arguments["method"] in NAMES}):
        here = by_method([r for r in few if where(r) == (source, target, shots)])
        rows = [_row(name, runs, here) for name, runs in here.items()]
        columns = ["learner", "ACC %", "to isotropic around the source weights", "BWT %", "FWT %", "NLL", "ECE %"]
        made.append(Table(f"prior from {source}, split {target}, {shots} images a class", columns, rows))
    made += [*_scaled(few), *_incremental(few)]
    whole = [r for r in records if r.arguments["protocol"] == "full"]
    if whole:
        rows = []
        for name, title in FULL.items():
            found = [100 * r.values["acc"] for r in whole if r.arguments["method"] == name]
            if found:
                rows.append([title, shown(*interval(found), digits=2)])
        rows += [[f"{name} (published)", f"{value:.1f}"] for name, value in OTHERS.items()]
        made.append(Table("Multi-head split MNIST, all images, two hidden layers of 256", ["learner", "ACC %"], rows))
    return made


def _scaled(records: Sequence[Record]) -> list[Table]:
    """How a column's scales are chosen, and what a certificate says with and without laterals."""
    made = []
    for source, target, shots in sorted({where(r) for r in records if r.arguments["method"] in SCALED}):
        rows = []
        for name, title in SCALED.items():
            runs = [r for r in records if where(r) == (source, target, shots) and r.arguments["method"] == name]
            if not runs:
                continue
            bounds = [statistics.mean(r.values["certificates"]) for r in runs if "certificates" in r.values]
            divergences = [statistics.mean(r.values["kl"]) for r in runs if "kl" in r.values]
            measures = [interval([100 * r.values["acc"] for r in runs]), interval([r.values["nll"] for r in runs])]
            texts = [shown(*measures[0]), shown(*measures[1], digits=3)]
            texts += [shown(*interval(bounds), digits=3), shown(*interval(divergences), digits=0)]
            rows.append([title, *texts, str(len(runs))])
        title = f"Scales of columns, split {target}, {shots} images a class, mean over tasks"
        made.append(Table(title, ["scales", "ACC %", "NLL", "certificate", "KL, nats", "seeds"], rows))
    return made


def _incremental(records: Sequence[Record]) -> list[Table]:
    """Accuracy over all ten classes where the task is not given."""
    here = [r for r in records if r.arguments["method"] in INCREMENTAL]
    places = sorted({where(r) for r in here})
    rows = []
    for name, title in INCREMENTAL.items():
        row = [title]
        for place in places:
            runs = [r for r in here if where(r) == place and r.arguments["method"] == name]
            both = [shown(*interval([100 * r.values[key] for r in runs])) for key in ("acc", "task")]
            row.append(f"{both[0]} ({both[1]})")
        rows.append(row)
    columns = ["learner", *(f"split {target}, {shots} a class" for _, target, shots in places)]
    title = "Class-incremental: accuracy in % over all classes (how often the task is found)"
    return [Table(title, columns, rows)] if places else []


def _row(name: str, runs: dict[int, Record], all_runs: dict[str, dict[int, Record]]) -> list[str]:
    base, alone = all_runs.get(NAMES[BASE], {}), all_runs.get(NAMES["alone"], {})
    lead = ahead(runs, base)
    transfers = [
        100 * statistics.mean(gain(runs[s], alone[s]))
        for s in sorted(runs.keys() & alone.keys())
        if runs[s].values["when learned"] is not None
    ]
    return [
        name,
        shown(*interval([100 * r.values["acc"] for r in runs.values()])),
        "" if name == NAMES[BASE] or not lead else shown(*interval(lead), sign=True),
        shown(*interval([100 * r.values["bwt"] for r in runs.values() if r.values["bwt"] is not None]), sign=True),
        "" if name == NAMES["alone"] else shown(*interval(transfers), sign=True),
        shown(*interval([r.values["nll"] for r in runs.values()]), digits=3),
        shown(*interval([100 * r.values["ece"] for r in runs.values()])),
    ]


def draw(records: Sequence[Record]) -> Figure:
    """Every learner's accuracy and NLL with its interval, seeds as dots."""
    few = [r for r in records if r.arguments["protocol"] == "small"]
    places = sorted({where(r) for r in few}) or [("", "", 0)]
    figure = Figure(figsize=(10, 0.6 + 3.6 * len(places)), layout="constrained")
    axes = figure.subplots(len(places), 2, squeeze=False, sharey="row")
    for row, place in zip(axes, places, strict=True):
        here = by_method([r for r in few if where(r) == place])
        for axis, measure, label, scale in ((row[0], "acc", "accuracy in %", 100), (row[1], "nll", "NLL", 1)):
            # By the runs of learners that forget little: one network for all tasks would leave no room for the rest.
            inside = [
                scale * r.values[measure] for title, runs in here.items() if title not in APART for r in runs.values()
            ]
            low, high = min(inside, default=0.0), max(inside, default=1.0)
            margin = 0.05 * (high - low) or 0.01
            axis.set(xlabel=label, xlim=(low - margin, high + margin))
            for y, (title, runs) in enumerate(here.items()):
                found = [scale * r.values[measure] for r in runs.values()]
                mean, half = interval(found)
                ours = title.startswith("BPNN")
                colour = "#0072b2" if ours else "0.35"
                axis.plot(found, [y] * len(found), ".", color=colour, alpha=0.35, markersize=5)
                axis.errorbar(
                    mean, y, xerr=half if len(found) > 1 else 0, fmt="o", color=colour, markersize=5, capsize=2
                )
                if not low - margin <= mean <= high + margin:
                    left = mean < low
                    text = f"◂ {mean:.3g}" if left else f"{mean:.3g} ▸"
                    axis.annotate(
                        text, (0.01 if left else 0.99, y), xycoords=("axes fraction", "data"), color=colour, fontsize=9,
                        ha="left" if left else "right", va="center",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
                    )  # fmt: skip
            axis.grid(axis="x", color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
        row[0].set_yticks(range(len(here)), list(here))
        row[0].invert_yaxis()
        source, target, shots = place
        row[0].set_title(f"prior from {source}, split {target}, {shots} images a class", loc="left", fontsize=10)
    return figure
