"""Accuracy over images per class: shrunk, as published, the exact sum, and the mode."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.declaration import Record
from posterity_studies.priors import COLOURS, PRIORS
from posterity_studies.small_data.reading import EXACT, OURS, WARM_PAIR, curve, paper_curve

PANELS = {
    OURS: "factors shrunk by 30 %,\nτ = 0.1",
    WARM_PAIR: "one pair, jitter 10 %, τ = 0.01\n(dashed: the paper, τ = 1e-5)",
    EXACT: "exact sum,\nγ = τ = 1e-5",
    "map": "the mode,\nno draws",
}


def draw(records: Sequence[Record]) -> Figure:
    panels = {key: title for key, title in PANELS.items() if curve(records, "learned", key)}
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (key, title) in zip(axes, panels.items(), strict=True):
        for kind, name in PRIORS.items():
            found = curve(records, kind, key)
            sizes = list(found)
            axis.plot(sizes, [m for m, _ in found.values()], marker="o", markersize=3, color=COLOURS[kind], label=name)
            low, high = [max(0, m - h) for m, h in found.values()], [min(100, m + h) for m, h in found.values()]
            axis.fill_between(sizes, low, high, color=COLOURS[kind], alpha=0.15, linewidth=0)
            if key == WARM_PAIR:
                theirs = {n: a for n, a in paper_curve(kind).items() if n <= 1000}
                axis.plot(list(theirs), list(theirs.values()), color=COLOURS[kind], linewidth=0.9, linestyle="--")
        axis.set(xscale="log", xlabel="images per class", ylim=(0, 100))
        axis.set_title(title, fontsize=10)
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("accuracy in %")
    axes[-1].legend(frameon=False, fontsize=8, loc="lower right")
    return figure
