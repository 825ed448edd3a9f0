"""A table for each task, and NLL, ECE and out-of-distribution detection as a figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.studies.calibration.methods import METHODS
from posterity_studies.studies.calibration.reading import by_seed, tasks

MEASURES = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "ece": "ECE",
    "ood fashion": "AUROC Fashion-MNIST",
    "ood cifar grey": "AUROC CIFAR grey",
}


def tables(records: Sequence[Record]) -> list[Table]:
    made = []
    for pair, shots in tasks(records):
        rows = []
        for key, method in METHODS.items():
            samples = [by_seed(records, pair, shots, key, measure) for measure in MEASURES]
            if samples[0]:
                values = [shown(*interval(list(s.values())), digits=3) for s in samples]
                rows.append([method.name, *values, str(method.trainings)])
        title = f"{pair[0]} → {pair[1]}, {shots} images per class: mean ± 95 % over seeds"
        made.append(Table(title, ["method", *MEASURES.values(), "trainings"], rows))
    return made


def draw(records: Sequence[Record]) -> Figure:
    found = tasks(records)
    figure = Figure(figsize=(11, 3.4 * len(found)), layout="constrained")
    panels = figure.subplots(len(found), 3, squeeze=False)
    for row, (pair, shots) in zip(panels, found, strict=True):
        for axis, measure in zip(row, ("nll", "ece", "ood fashion"), strict=True):
            scores = {m: by_seed(records, pair, shots, m, measure) for m in METHODS}
            spreads = [interval(list(s.values())) if s else (float("nan"), 0.0) for s in scores.values()]
            colours = ["#0072b2" if m == "learned" else "#8a8a8b" for m in METHODS]
            for i, ((mean, half), colour) in enumerate(zip(spreads, colours, strict=True)):
                axis.errorbar([mean], [i], xerr=[half], fmt="o", color=colour, capsize=3)
            axis.set_yticks(
                range(len(METHODS)), [m.name for m in METHODS.values()] if axis is row[0] else [""] * len(METHODS)
            )
            axis.invert_yaxis()
            axis.set(title=f"{pair[0]} → {pair[1]}" if axis is row[0] else "", xlabel=MEASURES[measure])
            axis.grid(color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
    return figure
