"""Accuracy over temperature: all weights drawn, dead units left alone, and the paper's Figure 8."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity.studies.cold_posterior.reading import UNITS, gammas, published, samples, temperatures
from posterity.studies.declaration import Record
from posterity.studies.intervals import interval
from posterity.studies.priors import COLOURS, PRIORS

LINES = ["-", "--", ":", "-."]


def draw(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    shown = [g for g in gammas(records) if published(g, "learned")] or gammas(records)
    for axis, units in zip(axes[:2], UNITS, strict=True):
        for kind in PRIORS:
            for gamma, line in zip(shown, LINES, strict=False):
                points = {
                    t: list(samples(records, kind, f"{units} {gamma:g} {t:g}").values()) for t in temperatures(records)
                }
                means = {t: interval(values)[0] for t, values in points.items() if values}
                axis.plot(list(means), list(means.values()), line, color=COLOURS[kind], marker="o", markersize=2.5)
        axis.set_title(f"ours: {UNITS[units]}")
    for kind, name in PRIORS.items():
        for gamma, line in zip(shown, LINES, strict=False):
            theirs = dict(sorted(published(gamma, kind).items()))
            label = name if gamma == shown[0] else None
            axes[2].plot(list(theirs), list(theirs.values()), line, color=COLOURS[kind], label=label)
    axes[2].set_title("the paper")
    for gamma, line in zip(shown, LINES, strict=False):
        axes[2].plot([], [], line, color="0.5", label=f"γ = {gamma:g}")
    for axis in axes:
        axis.set(xscale="log", xlabel="temperature τ", ylim=(0, 100))
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("accuracy in %")
    axes[2].legend(frameon=False, fontsize=8, loc="lower left")
    return figure
