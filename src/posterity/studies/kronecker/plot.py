"""Figure 3 of the paper drawn anew, with the error by iteration beside it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from posterity.studies.declaration import Record
from posterity.studies.kronecker import paper
from posterity.studies.kronecker.curves import Sample, curve, iterations

# Okabe and Ito's blue and vermilion: told apart by every kind of colour vision, and by lightness.
COLOURS = {"power": "#0072B2", "sum": "#D55E00"}
LABELS = {"power": "nearest product (power method)", "sum": "factor-wise sum"}
PANELS = {
    "size": "size of the factors, M = N",
    "scale": "scale of the Fisher matrix",
    "gamma": "weight decay γ",
    "terms": "number of terms K",
}
INK, FAINT = "#222222", "#d9d9d9"


def draw(records: Sequence[Record]) -> Figure:
    """Our curves as lines with 95 % bands, the paper's as hollow marks; an empty panel has no results yet."""
    figure = Figure(figsize=(15.5, 4.3), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)  # type: ignore[union-attr]
    axes = figure.subplots(1, 5)
    for axis, (panel, label) in zip(axes, PANELS.items(), strict=False):
        _panel(axis, records, panel)
        axis.set_xlabel(label)
    _iterations(axes[4], records)
    for axis in axes:
        _tidy(axis)
    axes[0].set_ylabel("relative Frobenius error")
    figure.legend(handles=_legend(), loc="outside upper center", ncols=5, frameon=False, fontsize=10.5)
    return figure


def _panel(axis: Axes, records: Sequence[Record], panel: str) -> None:
    if panel in ("scale", "gamma"):
        axis.set_xscale("log")
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for method, colour in COLOURS.items():
        _line(axis, curve(records, panel, method), colour)
        guarded = curve(records, panel, f"{method}_guarded")
        axis.plot(list(guarded), [s.mean for s in guarded.values()], color=colour, lw=1.1, ls=(0, (2, 1.6)))
        points = paper.CURVES[panel, method]
        middle = [p.middle for p in points]
        spans = [[p.middle - p.low for p in points], [p.high - p.middle for p in points]]
        axis.errorbar([p.x for p in points], middle, yerr=spans, color=colour, **_HOLLOW)


def _iterations(axis: Axes, records: Sequence[Record]) -> None:
    normal, positive = (
        {n + 1.0: sample for n, sample in enumerate(iterations(records, s))} for s in ("normal", "positive")
    )
    colour = COLOURS["power"]
    _line(axis, normal, colour)
    axis.plot(list(positive), [s.mean for s in positive.values()], color=colour, lw=1.1, ls=(0, (2, 1.6)))
    means = [mean for mean, _ in paper.ITERATIONS]
    axis.errorbar(range(1, len(means) + 1), means, color=colour, **_HOLLOW)
    axis.set_xlabel("iteration (1 is the start)")
    axis.set_ylim(0.02, 2)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _line(axis: Axes, points: dict[float, Sample], colour: str) -> None:
    x = list(points)
    axis.plot(x, [s.mean for s in points.values()], color=colour, lw=2.2, solid_capstyle="round")
    # A mean within its own standard error of zero has no lower end on a logarithmic axis.
    low = [max(s.low, s.mean / 100) for s in points.values()]
    axis.fill_between(x, low, [s.high for s in points.values()], color=colour, alpha=0.22, lw=0)


def _tidy(axis: Axes) -> None:
    axis.set_yscale("log")
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_locator(LogLocator(numticks=8))
    axis.grid(True, which="major", color=FAINT, lw=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=INK, labelsize=9.5, which="both")
    axis.xaxis.label.set(color=INK, size=10.5)
    axis.yaxis.label.set(color=INK, size=10.5)


def _legend() -> list[Line2D]:
    methods = [Line2D([], [], color=COLOURS[m], lw=2.2, label=LABELS[m]) for m in COLOURS]
    return [
        *methods,
        Line2D([], [], color=INK, lw=1.1, ls=(0, (2, 1.6)), label="measured as in the authors' script"),
        Line2D([], [], color=INK, ls="", marker="o", mfc="white", ms=5.5, label="paper, 95 % interval"),
    ]


_HOLLOW = {"fmt": "o", "mfc": "white", "ms": 5, "mew": 1.2, "elinewidth": 1.1, "capsize": 0, "zorder": 3}
