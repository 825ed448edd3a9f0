"""The demo's tables and figures, one panel each, so that a page can lay them side by side or one below the other."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from posterity_studies.demo.methods import METHODS
from posterity_studies.demo.reading import MEASURES, difference, fits, level, sizes, winner
from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import Interval, interval

MARK = {1: "▲", -1: "▼", 0: " "}

KEY = "▲ the learned prior is better, ▼ the other is, beyond the paired 95 % interval; no mark: within it."


def tables(records: Sequence[Record]) -> list[Table]:
    """One table a size of training set."""
    made = []
    for per_class in sizes(records):
        title = f"{per_class} image{'s' * (per_class > 1)} per class"
        ours = [f"{level(records, 'learned', per_class, m).mean:.3f}" + MARK[0] for m in MEASURES]
        rows = [[METHODS["learned"].short, *ours]]
        for rival in list(METHODS)[1:]:
            gaps = {m: difference(records, rival, per_class, m) for m in MEASURES}
            rows.append([METHODS[rival].short, *(signed(gap) + MARK[winner(gap, m)] for m, gap in gaps.items())])
        made.append(Table(title, ["", *MEASURES.values()], rows))
    return made


def signed(gap: Interval) -> str:
    sign = "+" if gap.mean >= 0 else "−"
    return f"{sign}{abs(gap.mean):.3f}±{gap.half:.3f}"


# Okabe and Ito's colours, told apart by every kind of colour vision; a shape for each as well.
COLOURS = {"learned": "#0072b2", "centred": "#d55e00", "tuned": "#009e73", "zero": "#8a8a8b"}

SHAPES = {"learned": "o", "centred": "s", "tuned": "^", "zero": "D"}

INK, GRID = "#222223", "#dededf"

SMALL_DATA = {"nll": "NLL (nats)", "error": "error", "ece": "ECE", "miss": "1 − OOD AUROC"}


def draw(records: Sequence[Record]) -> Figure:
    """The figure of the study: NLL by number of images."""
    return small_data(records, "nll")


def small_data(records: Sequence[Record], panel: str) -> Figure:
    """A measure by training images per class, low is good; bars are 95 % intervals of the mean over seeds."""
    figure, axis = _panel()
    measure, flipped = {"error": ("accuracy", True), "miss": ("ood", True)}.get(panel, (panel, False))
    for shift, method in enumerate(METHODS):
        found = [level(records, method, n, measure) for n in sizes(records)]
        middle = [1 - i.mean if flipped else i.mean for i in found]
        below = [min(i.half, 0.9 * m) for i, m in zip(found, middle, strict=True)]
        # A little apart, so that bars do not hide one another.
        x = [n * 1.03 ** (shift - 1.5) for n in sizes(records)]
        colour, shape = COLOURS[method], SHAPES[method]
        axis.errorbar(
            x, middle, [below, [i.half for i in found]], color=colour, marker=shape, ms=5, lw=1.8, elinewidth=1.1
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(sizes(records), [str(n) for n in sizes(records)])
    axis.set_xlabel("training images per class")
    _plain_log(axis)
    axis.set_title(SMALL_DATA[panel], loc="left", fontsize=11, color=INK)
    return figure


def reliability(records: Sequence[Record], method: str, per_class: int) -> Figure:
    """Accuracy by confidence, all seeds together; the bars below tell where the predictions are."""
    figure, axis = _panel(3.1, 2.8)
    bins: dict[int, list[float]] = {}
    cells = fits(records, method, per_class)
    for record in cells:
        for confidence, accuracy, share in zip(*record.values["reliability"], strict=True):
            total = bins.setdefault(min(int(confidence * 15), 14), [0.0, 0.0, 0.0])
            for k, value in enumerate((confidence, accuracy, 1.0)):
                total[k] += value * share
    points = [(b[0] / b[2], b[1] / b[2], b[2] / len(cells)) for _, b in sorted(bins.items())]
    x, y, share = zip(*points, strict=True)
    axis.plot([0, 1], [0, 1], color=INK, lw=1, ls=(0, (3, 2)))
    axis.bar(x, share, width=0.05, color=COLOURS[method], alpha=0.3, lw=0)
    axis.plot(x, y, color=COLOURS[method], marker=SHAPES[method], ms=5, lw=1.8)
    axis.set_xlim(0, 1.02)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("confidence")
    ece = level(records, method, per_class, "ece").mean
    axis.set_title(f"{METHODS[method].short}, ECE {ece:.3f}", loc="left", fontsize=11, color=INK)
    return figure


def temperature(records: Sequence[Record], measure: str) -> Figure:
    """Sampled (solid) and linearised (dashed) predictives from cold to warm; dots: the network without uncertainty."""
    figure, axis = _panel()
    for method in ("learned", "centred"):
        cells = [r for r in records if (r.arguments["experiment"], r.arguments["method"]) == ("temperature", method)]
        if not cells:
            continue
        x, colour = cells[0].arguments["temperatures"], COLOURS[method]
        for kind, style in (("sampled", "-"), ("linearised", (0, (4, 2)))):
            middle = [interval([c.values[kind][k][measure] for c in cells]).mean for k in range(len(x))]
            axis.plot(x, middle, color=colour, ls=style, marker=SHAPES[method], ms=4, lw=1.8)
        rest = interval([c.values["map"][measure] for c in cells]).mean
        axis.axhline(rest, color=colour, lw=1.2, ls=(0, (1, 2)))
    axis.set_xscale("log")
    axis.set_xlabel("temperature τ of the posterior")
    if measure == "nll":
        axis.set_yscale("log")
        _plain_log(axis)
    title = {"nll": "NLL (nats), low is good", "accuracy": "accuracy, high is good"}[measure]
    axis.set_title(title, loc="left", fontsize=11, color=INK)
    return figure


def svg(figure: Figure, name: str) -> str:
    """A figure as inline SVG whose colours follow the page's, light or dark. The same figure gives the same text."""
    # The salt keeps the names inside one drawing apart from those of the page's other drawings.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', f'role="img" aria-label="{name}"', text, count=1)
    text = re.sub(
        r'\bid="((?:figure|axes|patch|line2d|text|matplotlib|xtick|ytick|LineCollection|PathCollection)[\w.]*)"',
        "",
        text,
    )
    text = re.sub(r"(font: [^;\"]*?)'[^\"]*?sans-serif", r"\1system-ui, sans-serif", text)
    for role, colour in {**COLOURS, "ink": INK, "grid": GRID}.items():
        text = text.replace(colour, f"var(--{role})")
    return text


def _panel(width: float = 4.3, height: float = 3.1) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    axis.grid(True, color=GRID, lw=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(INK)
    axis.tick_params(which="both", colors=INK, labelsize=10)
    axis.xaxis.label.set(color=INK, size=10.5)
    return figure, axis


def _plain_log(axis: Axes) -> None:
    """Numbers a reader knows on a logarithmic axis."""
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_locator(NullLocator())
