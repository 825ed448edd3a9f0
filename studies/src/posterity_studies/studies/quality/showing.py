"""One table a measure, settings by methods; and how far each rival is from the default call as a figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import shown
from posterity_studies.studies.quality.methods import NAMES
from posterity_studies.studies.quality.reading import Results, lines, results

SHORT = {
    "default": "ours",
    "adapt": "ours, no training",
    "isotropic": "ours, isotropic",
    "mode": "ours, mode",
    "map": "MAP",
    "temperature": "temp. scaling",
    "l2sp": "L2-SP",
    "dropout": "MC dropout",
    "laplace marglik": "laplace-torch marglik",
    "laplace gridsearch": "laplace-torch grid",
    "laplace all": "laplace-torch all layers",
    "ivon": "IVON",
    "ensemble": "ensemble of 5",
}
MEASURES = {
    "nll": ("NLL in mean nats (regression: in the target's units)", 3),
    "ece": ("Expected calibration error", 3),
    "accuracy": ("Accuracy", 3),
    "brier": ("Brier score", 3),
    "auroc": ("AUROC for unknown inputs", 3),
    "seconds": ("CPU seconds after the source network: all fitting, choosing and predicting", 1),
}
RIVALS = {
    "map": "#d55e00",
    "l2sp": "#e69f00",
    "dropout": "#cc79a7",
    "laplace gridsearch": "#009e73",
    "ivon": "#999999",
    "ensemble": "#000000",
}
WIDEST = 1.5
"""Nats at which a difference leaves the figure."""


def tables(records: Sequence[Record]) -> list[Table]:
    """What was asked, differences in NLL, then measure by measure."""
    found = results(records)
    asked = Table(
        "What was asked of the default call",
        ["asked", "holds", "figures"],
        [[line.asked, "yes" if line.holds else "no", line.found] for line in lines(records)],
    )
    return [asked, _differences(found), *(_measure(found, measure) for measure in MEASURES)]


def _differences(found: Results) -> Table:
    """Ours minus each rival, paired."""
    rivals = [m for m in SHORT if m not in ("default", "mode")]
    rows = []
    for setting in found.settings:
        cells = [shown(*found.difference(setting, "default", m), digits=3, sign=True) for m in rivals]
        rows.append([str(setting), *cells])
    return Table(
        "NLL of the default call minus each other's, paired (below zero: ours is better)",
        ["", *(SHORT[m] for m in rivals)],
        rows,
    )


def _measure(found: Results, measure: str) -> Table:
    title, digits = MEASURES[measure]
    rows = []
    for setting in found.settings:
        means = [found.mean(setting, m, measure) for m in SHORT]
        if any(mean is not None for mean in means):
            rows.append([str(setting), *("–" if mean is None else f"{mean:.{digits}f}" for mean in means)])
    return Table(title, ["", *SHORT.values()], rows)


def draw(records: Sequence[Record]) -> Figure:
    """Left: how much higher each rival's NLL is. Right: how well unknown inputs are separated."""
    found = results(records)
    settings = found.settings
    figure = Figure(figsize=(11, 1.5 + 0.42 * len(settings)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1.7, 1])
    for offset, (rival, colour) in enumerate(RIVALS.items()):
        for row, setting in enumerate(settings):
            mean, half = found.difference(setting, "default", rival)
            if mean != mean:
                continue
            height = row + 0.11 * (offset - len(RIVALS) / 2)
            beyond = -mean > WIDEST
            spread = 0.0 if beyond or half != half else half
            left.errorbar(
                min(-mean, WIDEST), height, xerr=spread, fmt=">" if beyond else "o", color=colour, markersize=4,
                linewidth=1, label=NAMES[rival] if row == 0 else None,
            )  # fmt: skip
    left.axvline(0, color="0.4", linewidth=1)
    left.set(xlabel="NLL above the default call's, nats", xlim=(-0.6, WIDEST + 0.08))
    left.legend(frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    for method, colour, marker in (("default", "#0072b2", "D"), ("map", "#d55e00", "o"), ("ensemble", "#000000", "o")):
        points = [
            (value, row) for row, s in enumerate(settings) if (value := found.mean(s, method, "auroc")) is not None
        ]
        if points:
            right.plot(*zip(*points, strict=True), marker, color=colour, markersize=5, label=NAMES[method])
    right.set(xlabel="AUROC for unknown inputs")
    if right.has_data():
        right.legend(frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    left.set_yticks(range(len(settings)), [str(s) for s in settings], fontsize=8)
    left.invert_yaxis()
    for axis in (left, right):
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    return figure
