"""Our figures beside the paper's: tables, and its Figure 3 drawn again with the error by iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared import published
from posterity_studies.studies.kronecker.reading import NORMAL_95, Sample, curve, in_experiment, iterations, overall

METHODS = {"power": "power method", "sum": "factor-wise sum"}

PANELS = {"size": "size", "scale": "Fisher scale", "gamma": "weight decay", "terms": "terms K"}


def tables(records: Sequence[Record]) -> list[Table]:
    """As many as the records suffice for: overall, by number of terms, by iteration, and by panel of Figure 3."""
    made = []
    if in_experiment(records, "decay"):
        made.append(_overall(records))
    if in_experiment(records, "terms"):
        made.append(_terms(records))
    if in_experiment(records, "iterations"):
        made.append(_iterations(records))
    return [*made, _panels(records)]


def _overall(records: Sequence[Record]) -> Table:
    sizes = sorted({r.arguments["size"] for r in in_experiment(records, "decay")})
    rows = []
    for method, name in METHODS.items():
        theirs, shown = _published(method, sizes)
        for suffix, label in (("", name), ("_guarded", "· authors' way")):
            ours = overall(records, method + suffix)
            rows.append([label, _spread(ours), shown, *_difference(ours, theirs)])
    rows.append(["closed form", _spread(overall(records, "nearest")), "", "", ""])
    complete = len(sizes) == len(published.kronecker_curve("size", "power"))
    return Table(
        "Relative error of L⊗R + γI" + ("" if complete else f", sizes {', '.join(map(str, sizes))} only"),
        ["", "ours", "paper", "differs", "σ apart"],
        rows,
    )


def _published(method: str, sizes: Sequence[int]) -> tuple[float, str]:
    """The paper's mean over these sizes, as a number and as it is shown."""
    points = [p for p in published.kronecker_curve("size", method) if p.x in sizes]
    if len(points) == len(published.kronecker_curve("size", method)):
        mean, std = published.NEAREST[method]
        return mean, f"{mean:.5f} ± {std:.5f}"
    mean = sum(p.middle for p in points) / len(points)
    return mean, f"{mean:.5f}"


def _terms(records: Sequence[Record]) -> Table:
    ours = {method: curve(records, "terms", method) for method in METHODS}
    theirs = {method: {p.x: p.middle for p in published.kronecker_curve("terms", method)} for method in METHODS}
    rows = []
    for terms in ours["power"]:
        row = [f"{terms:g}"]
        for method in METHODS:
            mine, printed = ours[method][terms], theirs[method][terms]
            row += [f"{mine.mean:.3f}", f"{printed:.3f}", _difference(mine, printed)[1]]
        rows.append(row)
    columns = ["K", *("power", "paper", "σ apart"), *("factor-wise", "paper", "σ apart")]
    return Table("Relative error of a sum of K products, 5×5 factors", columns, rows)


def _iterations(records: Sequence[Record]) -> Table:
    rows = []
    runs = zip(
        iterations(records, "normal", alike=False),
        iterations(records, "normal", alike=True),
        iterations(records, "positive", alike=True),
        published.ITERATIONS,
        strict=False,
    )
    for number, (independent, normal, positive, (mean, std)) in enumerate(runs, start=1):
        rows.append(
            [
                "1 (start)" if number == 1 else f"{number}",
                f"{independent.mean:.4f}",
                f"{normal.mean:.4f}",
                f"{positive.mean:.4f} ± {positive.std:.4f}",
                f"{mean:.3f} ± {std:.3f}",
                f"{positive.mean - mean:+z.4f}",
            ]
        )
    columns = ["iteration", "independent", "alike", "alike, authors' start", "paper", "differs"]
    return Table("Relative error by iteration, three terms independent or alike", columns, rows)


def _panels(records: Sequence[Record]) -> Table:
    """How well the curves of Figure 3 agree, the error measured as the authors' script does."""
    rows = []
    for panel, label in PANELS.items():
        for method, name in METHODS.items():
            ours = curve(records, panel, f"{method}_guarded")
            points = [
                p for p in published.kronecker_curve(panel, method) if p.x in ours and p.middle > published.ROUNDING
            ]
            apart = {p.x: _errors_apart(ours[p.x], p.middle) for p in points}
            if apart:
                worst = max(apart, key=lambda x: abs(apart[x]))
                close = sum(abs(z) <= NORMAL_95 for z in apart.values())
                rows.append([label, name, f"{close} of {len(points)}", f"{worst:g}", f"{apart[worst]:+z.1f}"])
    return Table(
        "Points of Figure 3 within 1.96 σ of ours, done the authors' way",
        ["panel", "method", "points", "furthest at", "σ apart"],
        rows,
    )


def _errors_apart(ours: Sample, theirs: float) -> float:
    """The difference in standard errors, the paper's mean taken to be as noisy as ours: it has as many draws."""
    return (ours.mean - theirs) / (math.sqrt(2) * ours.noise)


def _difference(ours: Sample, theirs: float) -> tuple[str, str]:
    return f"{100 * (ours.mean / theirs - 1):+z.1f} %", f"{_errors_apart(ours, theirs):+z.1f}"


def _spread(sample: Sample) -> str:
    return f"{sample.mean:.5f} ± {sample.std:.5f}"


# Okabe and Ito's blue and vermilion: distinct for every kind of colour vision, and by lightness.
COLOURS = {"power": "#0072B2", "sum": "#D55E00"}

INK, PALE = "#222222", "#e2e2e2"

SOLID: Mapping[str, Any] = {"lw": 2.2, "solid_capstyle": "round"}

DASHED: Mapping[str, Any] = {"lw": 1.3, "ls": (0, (2.5, 1.5))}

HOLLOW: Mapping[str, Any] = {"fmt": "o", "mfc": "white", "ms": 5, "mew": 1.2, "elinewidth": 1.1, "zorder": 3}

LABELS = {
    "size": "size of the factors, M = N",
    "scale": "scale of the Fisher matrix",
    "gamma": "weight decay γ",
    "terms": "number of terms K",
}


def draw(records: Sequence[Record]) -> Figure:
    """Our curves as lines with 95 % bands, the paper's as hollow marks. What has no results yet has no line."""
    figure = Figure(figsize=(11, 6.6), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    *axes, key = figure.subplots(2, 3).flat
    for axis, (panel, label) in zip(axes, LABELS.items(), strict=False):
        _panel(axis, records, panel)
        axis.set_xlabel(label)
    _iterations_panel(axes[-1], records)
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
        points = published.kronecker_curve(panel, method)
        spans = [[p.middle - p.low for p in points], [p.high - p.middle for p in points]]
        axis.errorbar([p.x for p in points], [p.middle for p in points], spans, color=colour, **HOLLOW)


def _iterations_panel(axis: Axes, records: Sequence[Record]) -> None:
    colour = COLOURS["power"]
    normal, positive = (iterations(records, start, alike=True) for start in ("normal", "positive"))
    _line(axis, dict(enumerate(normal, start=1)), colour)
    axis.plot(range(1, len(positive) + 1), [s.mean for s in positive], color=colour, **DASHED)
    means = [mean for mean, _ in published.ITERATIONS]
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
