"""Test NLL and RMSE by method: table and figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, paired, shown
from posterity_studies.studies.regression.reading import by_split, sets_of

METHODS = {
    "map": "mode and noise",
    "linearised": "Laplace, linearised",
    "sampled": "Laplace, sampled",
    "dropout": "MC dropout",
    "ensemble": "ensemble of 5",
}


def tables(records: Sequence[Record]) -> list[Table]:
    rows = []
    for data in sets_of(records):
        for method, name in METHODS.items():
            nll, rmse = (by_split(records, data, f"{method} {measure}") for measure in ("nll", "rmse"))
            base = by_split(records, data, "map nll")
            difference = "" if method == "map" else shown(*paired(nll, base), digits=3, sign=True)
            cells = [shown(*interval(list(v.values())), digits=d) for v, d in ((nll, 3), (rmse, 2))]
            rows.append([data, name, cells[0], difference, cells[1]])
    columns = ["data", "predictive", "test NLL", "paired to the mode", "RMSE"]
    return [Table("Test NLL in mean nats and RMSE in the target's units, mean ± 95 % over splits", columns, rows)]


def draw(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    sets = sets_of(records)
    axes = figure.subplots(1, len(sets), squeeze=False)[0]
    for axis, data in zip(axes, sets, strict=True):
        spreads = [interval(list(by_split(records, data, f"{m} nll").values())) for m in METHODS]
        heights = range(len(METHODS))
        axis.errorbar(
            [m for m, _ in spreads], heights, xerr=[h for _, h in spreads], fmt="o", color="#0072b2", capsize=3
        )
        axis.set_yticks(heights, list(METHODS.values()) if axis is axes[0] else [""] * len(METHODS))
        axis.invert_yaxis()
        axis.set(title=data, xlabel="test NLL")
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    return figure
