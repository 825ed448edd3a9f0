"""Figure 3 of the paper drawn anew, with the error by iteration beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from posterity_studies.declaration import Record
from posterity_studies.kronecker import paper
from posterity_studies.kronecker.curves import Sample, curve, iterations

# Okabe and Ito's blue and vermilion: told apart by every kind of colour vision, and by lightness.
COLOURS = {"power": "#0072B2", "sum": "#D55E00"}
INK, PALE = "#222222", "#e2e2e2"
SOLID: Mapping[str, Any] = {"lw": 2.2, "solid_capstyle": "round"}
DASHED: Mapping[str, Any] = {"lw": 1.3, "ls": (0, (2.5, 1.5))}
HOLLOW: Mapping[str, Any] = {"fmt": "o", "mfc": "white", "ms": 5, "mew": 1.2, "elinewidth": 1.1, "zorder": 3}
PANELS = {
    "size": "size of the factors, M = N",
    "scale": "scale of the Fisher matrix",
    "gamma": "weight decay γ",
    "terms": "number of terms K",
}


def draw(records: Sequence[Record]) -> Figure:
    """Our curves as lines with 95 % bands, the paper's as hollow marks. What has no results yet has no line."""
    figure = Figure(figsize=(11, 6.6), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    *axes, key = figure.subplots(2, 3).flat
    for axis, (panel, label) in zip(axes, PANELS.items(), strict=False):
        _panel(axis, records, panel)
        axis.set_xlabel(label)
    _iterations(axes[-1], records)
    for axis in axes:
        _tidy(axis)
    for axis in (axes[0], axes[3]):
        axis.set_ylabel("relative Frobenius error")
    _legend(key)
    return figure


def _panel(axis: Axes, records: Sequence[Record], panel: str) -> None:
    if panel in ("scale", "gamma"):
        axis.set_xscale("log")
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for method, colour in COLOURS.items():
        _line(axis, curve(records, panel, method), colour)
        guarded = curve(records, panel, f"{method}_guarded")
        axis.plot(list(guarded), [s.mean for s in guarded.values()], color=colour, **DASHED)
        points = paper.CURVES[panel, method]
        spans = [[p.middle - p.low for p in points], [p.high - p.middle for p in points]]
        axis.errorbar([p.x for p in points], [p.middle for p in points], spans, color=colour, **HOLLOW)


def _iterations(axis: Axes, records: Sequence[Record]) -> None:
    colour = COLOURS["power"]
    normal, positive = (iterations(records, start, alike=True) for start in ("normal", "positive"))
    _line(axis, dict(enumerate(normal, start=1)), colour)
    axis.plot(range(1, len(positive) + 1), [s.mean for s in positive], color=colour, **DASHED)
    means = [mean for mean, _ in paper.ITERATIONS]
    axis.errorbar(range(1, len(means) + 1), means, color=colour, **HOLLOW)
    axis.set_xlabel("iteration (1 is the start)")


def _line(axis: Axes, points: Mapping[float, Sample], colour: str) -> None:
    x = list(points)
    axis.plot(x, [s.mean for s in points.values()], color=colour, **SOLID)
    # A mean within its own standard error of zero has no lower end on a logarithmic axis.
    low = [max(s.low, s.mean / 100) for s in points.values()]
    axis.fill_between(x, low, [s.high for s in points.values()], color=colour, alpha=0.25, lw=0)


def _tidy(axis: Axes) -> None:
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    if high / low < 1e4:
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
    axis.grid(True, color=PALE, lw=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=INK, labelsize=9.5)
    axis.xaxis.label.set(color=INK, size=10.5)
    axis.yaxis.label.set(color=INK, size=10.5)


def _legend(axis: Axes) -> None:
    """The sixth place: what the colours and the strokes mean."""
    axis.axis("off")
    handles = [
        Line2D([], [], color=COLOURS["sum"], **SOLID, label="sum factor by factor"),
        Line2D([], [], color=COLOURS["power"], **SOLID, label="nearest Kronecker product"),
        Line2D([], [], color=INK, **SOLID, label="ours, with 95 % interval"),
        Line2D(
            [],
            [],
            color=INK,
            **DASHED,
            label="ours, done as in the authors' script:\nerror / (norm + 1.2e-7); its start",
        ),
        Line2D(
            [],
            [],
            color=INK,
            ls="",
            marker="o",
            mfc="white",
            mew=1.2,
            label="paper, with 95 % interval\n(float32: nothing below 1e-7)",
        ),
    ]
    axis.legend(handles=handles, loc="center", frameon=False, fontsize=10.5, labelspacing=1.0, handlelength=2.6)
