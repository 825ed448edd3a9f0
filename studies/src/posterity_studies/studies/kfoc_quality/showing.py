"""A row per batch size and method, a column per layer: table and figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.studies.kfoc_quality.cells import BLOCKS
from posterity_studies.studies.kfoc_quality.reading import batches, samples

METHODS = {"kfac": "KFAC", "kfoc": "K-FOC", "ekfac": "EKFAC"}

COLOURS = {"kfac": "#d55e00", "kfoc": "#0072b2", "ekfac": "#009e73"}


def tables(records: Sequence[Record]) -> list[Table]:
    """A row per batch size and method, a column per block."""
    rows = []
    for batch in batches(records):
        for method, name in METHODS.items():
            errors = [samples(records, method, block, batch) for block in BLOCKS]
            rows.append([str(batch), name, *(shown(*interval(sample), digits=3) for sample in errors)])
    return [Table("Relative error to the Fisher information, by batch size", ["batch", "", *BLOCKS.values()], rows)]


def draw(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    axes = figure.subplots(1, len(BLOCKS), sharey=True)
    sizes = batches(records)
    for axis, (block, title) in zip(axes, BLOCKS.items(), strict=True):
        for method, name in METHODS.items():
            spreads = [interval(samples(records, method, block, batch)) for batch in sizes]
            middle = [mean for mean, _ in spreads]
            axis.plot(sizes, middle, marker="o", markersize=4, color=COLOURS[method], label=name)
            low, high = [m - h for m, h in spreads], [m + h for m, h in spreads]
            axis.fill_between(sizes, low, high, color=COLOURS[method], alpha=0.2, linewidth=0)
        axis.set(title=title, xscale="log", xlabel="batch size", ylim=(0, None))
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("relative error to the Fisher")
    axes[0].legend(frameon=False)
    return figure
