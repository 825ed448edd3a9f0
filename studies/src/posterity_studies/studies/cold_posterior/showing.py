"""What draws lose at τ = 0.1, accuracy by temperature beside the paper's, and both as curves."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.drawing import TREATMENTS
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.shared.priors import COLOURS, PRIORS
from posterity_studies.studies.cold_posterior.reading import (
    amounts,
    gammas,
    lost,
    named,
    paper_curve,
    samples,
    temperatures,
    treatments,
    with_shots,
)

SHORT = {"learned": "learned", "mean": "at the mean", "zero": "at zero"}

LINES = ["-", "--", ":", "-."]


def tables(records: Sequence[Record]) -> list[Table]:
    """The claim first, then the curves."""
    made = [_lost(records, shots) for shots in amounts(records)]
    for shots in amounts(records):
        here = with_shots(records, shots)
        made += [_temperatures(here, shots, gamma) for gamma in gammas(here) if gamma == 1e-5 or len(gammas(here)) == 1]
    return [*made, *_over_gamma(records)]


def _lost(records: Sequence[Record], shots: int) -> Table:
    here = with_shots(records, shots)
    rows = []
    for treatment in treatments(here):
        for gamma in gammas(here):
            found = [lost(here, kind, f"{treatment} {gamma:g} 0.1") for kind in PRIORS]
            if any(found):
                rows.append([TREATMENTS[treatment], f"{gamma:g}", *(shown(*interval(s)) if s else "–" for s in found)])
    linear = [[v for g in gammas(here) for v in lost(here, kind, f"{g:g} linearised")] for kind in PRIORS]
    rows.append(["linearised, τ = 1", "all", *(shown(*interval(s)) if s else "–" for s in linear)])
    for gamma in gammas(here) if shots == min(amounts(records)) else []:
        theirs = [paper_curve(gamma, kind) for kind in PRIORS]
        cells = [f"{t[1e-9] - t[0.1]:.1f}" if {1e-9, 0.1} <= t.keys() else "–" for t in theirs]
        if set(cells) != {"–"}:
            rows.append(["the paper, to τ = 1e-9", f"{gamma:g}", *cells])
    columns = ["draws", "γ", *SHORT.values()]
    return Table(f"Points of accuracy lost to the mode at τ = 0.1, {named(shots)}", columns, rows)


def _temperatures(here: Sequence[Record], shots: int, gamma: float) -> Table:
    rows = []
    for treatment in treatments(here):
        for tau in temperatures(here):
            found = [list(samples(here, kind, f"{treatment} {gamma:g} {tau:g}").values()) for kind in PRIORS]
            if any(found):
                rows.append([TREATMENTS[treatment], f"{tau:g}", *(shown(*interval(s)) if s else "–" for s in found)])
    mode = [list(samples(here, kind, "map").values()) for kind in PRIORS]
    rows.append(["the mode", "", *(shown(*interval(s)) if s else "–" for s in mode)])
    return Table(
        f"Accuracy in %, γ = {gamma:g}, {named(shots)}, mean ± 95 % over seeds", ["draws", "τ", *SHORT.values()], rows
    )


def _over_gamma(records: Sequence[Record]) -> list[Table]:
    """Where γ matters and where it does not: all images, beside the paper's Figure 8."""
    here = with_shots(records, min(amounts(records)))
    if len(gammas(here)) < 2:
        return []
    rows = []
    for tau in temperatures(here):
        for gamma in gammas(here):
            row = [f"{tau:g}", f"{gamma:g}"]
            for treatment in treatments(here):
                found = [list(samples(here, kind, f"{treatment} {gamma:g} {tau:g}").values()) for kind in PRIORS]
                row.append(" ".join(f"{interval(s)[0]:.0f}" if s else "–" for s in found))
            theirs = [paper_curve(gamma, kind).get(tau) for kind in PRIORS]
            rows.append([*row, " ".join("–" if p is None else f"{p:.0f}" for p in theirs)])
    columns = ["τ", "γ", *(TREATMENTS[treatment] for treatment in treatments(here)), "the paper"]
    return [
        Table(
            "Accuracy in % of learned, isotropic around the source weights, isotropic at zero, all images",
            columns,
            rows,
        )
    ]


def draw(records: Sequence[Record]) -> Figure:
    whole, few = min(amounts(records)), max(amounts(records))
    wanted = [(whole, "free"), (whole, "joined 0.1"), (whole, "shrunk 0.1"), (few, "shrunk 0.5")]
    panels = [panel for panel in dict.fromkeys(wanted) if panel[1] in treatments(with_shots(records, panel[0]))]
    figure = Figure(figsize=(3.1 * (len(panels) + 1), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels) + 1, sharey=True)
    shown = [g for g in gammas(records) if paper_curve(g, "learned")] or gammas(records)
    for axis, (shots, treatment) in zip(axes, panels, strict=False):
        here = with_shots(records, shots)
        for kind in PRIORS:
            for gamma, line in zip(shown, LINES, strict=False):
                points = {
                    t: list(samples(here, kind, f"{treatment} {gamma:g} {t:g}").values())
                    for t in temperatures(here)
                    if t >= 1e-7
                }
                means = {t: interval(values)[0] for t, values in points.items() if values}
                axis.plot(list(means), list(means.values()), line, color=COLOURS[kind], marker="o", markersize=2.5)
        axis.set_title(f"{TREATMENTS[treatment]},\n{named(shots)}", fontsize=10)
    for kind, name in PRIORS.items():
        for gamma, line in zip(shown, LINES, strict=False):
            theirs = {tau: value for tau, value in sorted(paper_curve(gamma, kind).items()) if tau >= 1e-7}
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
