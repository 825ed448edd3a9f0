"""MAP accuracy and the linearised predictive's NLL by images per class, a column per pair of data sets."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.declaration import Record
from posterity_studies.intervals import interval
from posterity_studies.priors import COLOURS, PRIORS
from posterity_studies.transfer.fair import on, pairs_of
from posterity_studies.transfer.scores import by_seed


def draw(records: Sequence[Record]) -> Figure:
    pairs = pairs_of(records)
    figure = Figure(figsize=(3.6 * max(1, len(pairs)), 6), layout="constrained")
    axes = figure.subplots(2, max(1, len(pairs)), squeeze=False, sharex=True)
    for column, (source, target) in enumerate(pairs):
        here = on(records, (source, target))
        shots = sorted({r.arguments["shots"] for r in here})
        for row, measure in enumerate(("map accuracy", "linearised nll")):
            axis = axes[row][column]
            for kind, name in PRIORS.items():
                spreads = [interval(list(by_seed(here, s, kind, measure).values())) for s in shots]
                axis.plot(shots, [m for m, _ in spreads], marker="o", markersize=4, color=COLOURS[kind], label=name)
                low, high = [m - h for m, h in spreads], [m + h for m, h in spreads]
                axis.fill_between(shots, low, high, color=COLOURS[kind], alpha=0.15, linewidth=0)
            axis.set(xscale="log", ylabel=("MAP accuracy", "NLL, linearised")[row] if column == 0 else "")
            axis.set_xticks(shots, [str(n) for n in shots])
            axis.minorticks_off()
            axis.grid(color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
        axes[0][column].set_title(f"{source} → {target}")
        axes[1][column].set_xlabel("images per class")
    axes[0][0].legend(frameon=False, fontsize=8)
    return figure
