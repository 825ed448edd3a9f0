"""Accuracy, NLL and ECE by source of text and prior: table and figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, paired, shown
from posterity_studies.studies.lora.reading import by_seed, targets_of

METHODS = {
    "learned": "learned prior",
    "isotropic": "isotropic around the source weights",
    "none": "no prior, fine-tuned",
    "fresh": "no prior, fresh adapters",
    "as it is": "not adapted",
}


def tables(records: Sequence[Record]) -> list[Table]:
    rows = []
    for target in targets_of(records):
        base = by_seed(records, target, "isotropic", "nll")
        for method, name in METHODS.items():
            found = {m: by_seed(records, target, method, m) for m in ("accuracy", "nll", "ece")}
            scores = [shown(*interval(list(v.values())), digits=3) for v in found.values()]
            difference = "" if method == "isotropic" else shown(*paired(found["nll"], base), digits=3, sign=True)
            rows.append([target, name, *scores, difference])
    columns = ["text", "adapters", "accuracy", "NLL", "ECE", "NLL, paired to isotropic"]
    return [
        Table("Ten sentences of each class, test sentences of the same source, mean ± 95 % over seeds", columns, rows)
    ]


def draw(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    targets = targets_of(records)
    axes = figure.subplots(1, len(targets), squeeze=False)[0]
    for axis, target in zip(axes, targets, strict=True):
        for height, method in enumerate(METHODS):
            values = list(by_seed(records, target, method, "nll").values())
            axis.plot(values, [height] * len(values), "o", color="#0072b2", alpha=0.5)
            axis.plot([interval(values).mean], [height], "|", color="black", markersize=14)
        axis.set_yticks(range(len(METHODS)), list(METHODS.values()) if axis is axes[0] else [""] * len(METHODS))
        axis.invert_yaxis()
        axis.set(title=target, xlabel="test NLL")
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    return figure
