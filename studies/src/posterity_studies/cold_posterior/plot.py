"""Accuracy over temperature: drawn in four ways, and the paper's Figure 8."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.cold_posterior.reading import amounts, gammas, named, of, published, samples, temperatures, ways
from posterity_studies.declaration import Record
from posterity_studies.intervals import interval
from posterity_studies.priors import COLOURS, PRIORS
from posterity_studies.ways import WAYS

LINES = ["-", "--", ":", "-."]


def draw(records: Sequence[Record]) -> Figure:
    whole, few = min(amounts(records)), max(amounts(records))
    wanted = [(whole, "free"), (whole, "joined 0.1"), (whole, "shrunk 0.1"), (few, "shrunk 0.5")]
    panels = [panel for panel in dict.fromkeys(wanted) if panel[1] in ways(of(records, panel[0]))]
    figure = Figure(figsize=(3.1 * (len(panels) + 1), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels) + 1, sharey=True)
    shown = [g for g in gammas(records) if published(g, "learned")] or gammas(records)
    for axis, (shots, way) in zip(axes, panels, strict=False):
        here = of(records, shots)
        for kind in PRIORS:
            for gamma, line in zip(shown, LINES, strict=False):
                points = {
                    t: list(samples(here, kind, f"{way} {gamma:g} {t:g}").values())
                    for t in temperatures(here)
                    if t >= 1e-7
                }
                means = {t: interval(values)[0] for t, values in points.items() if values}
                axis.plot(list(means), list(means.values()), line, color=COLOURS[kind], marker="o", markersize=2.5)
        axis.set_title(f"{WAYS[way]},\n{named(shots)}", fontsize=10)
    for kind, name in PRIORS.items():
        for gamma, line in zip(shown, LINES, strict=False):
            theirs = {tau: value for tau, value in sorted(published(gamma, kind).items()) if tau >= 1e-7}
            label = name if gamma == shown[0] else None
            axes[-1].plot(list(theirs), list(theirs.values()), line, color=COLOURS[kind], label=label)
    axes[-1].set_title("the paper,\nall images", fontsize=10)
    for gamma, line in zip(shown, LINES, strict=False):
        axes[-1].plot([], [], line, color="0.5", label=f"γ = {gamma:g}")
    for axis in axes:
        axis.set(xscale="log", xlabel="temperature τ", ylim=(0, 100), xlim=(1e-7, 1.5))
        axis.axvline(0.1, color="0.8", linewidth=0.8, zorder=0)
        axis.grid(color="0.93")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("accuracy in %")
    axes[-1].legend(frameon=False, fontsize=8, loc="lower left")
    return figure
