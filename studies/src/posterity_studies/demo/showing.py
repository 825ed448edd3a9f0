"""The demo's table and figures, one panel each, so that a page can lay them side by side or one below the other."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from posterity.plot.canvas import COLOURS as PALETTE
from posterity.plot.canvas import INK, canvas
from posterity_studies.demo import doubts
from posterity_studies.demo.methods import METHODS
from posterity_studies.demo.reading import (
    MEASURES,
    lead,
    level,
    methods,
    pooled,
    seconds,
    signed,
    wearers,
    winner,
)
from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval

COLOURS = {
    "learned": PALETTE["blue"],
    "isotropic": PALETTE["orange"],
    "ensemble": PALETTE["purple"],
    "tuned": PALETTE["green"],
    "none": PALETTE["grey"],
    "scratch": PALETTE["ochre"],
}
SHAPES = {"learned": "o", "isotropic": "s", "ensemble": "v", "tuned": "^", "none": "", "scratch": "D"}
MARK = {1: "▲", -1: "▼", 0: " "}
KEY = (
    "▲ the learned prior is better than this row, ▼ this row is better, beyond the 95 % interval paired by wearer; "
    "no mark: cannot be known."
)


def table(records: Sequence[Record]) -> Table:
    """All methods, all measures, all seconds of labels: means over wearers."""
    rows = []
    for s in seconds(records):
        for number, name in enumerate(methods(records)):
            row = [METHODS[name], f"{s} s" if number == 0 else ""]
            for measure in MEASURES:
                mean = level(records, name, s, measure).mean
                mark = MARK[0 if name == "learned" else winner(lead(records, name, s, measure), measure)]
                row.append((f"{100 * mean:.1f}" if measure == "accuracy" else f"{mean:.3f}") + mark)
            rows.append(row)
    title = f"A new wearer, mean over {len(wearers(records))}; seconds of labels for each exercise and arm"
    return Table(title, ["", "labels", "NLL ", "right, % ", "ECE ", "unknown "], rows)


def markdown(records: Sequence[Record]) -> str:
    """The table of `docs/results.md`: most seconds of labels, and the learned prior's lead over each rival, paired by wearer."""
    s = seconds(records)[-1]
    lines = [
        f"| {s} s of each exercise and arm | accuracy | NLL | ECE | unknown exercise, AUROC | learned prior's lead in NLL |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in methods(records):
        right, *rest = (level(records, name, s, measure).mean for measure in ("accuracy", "nll", "ece", "auroc"))
        cells = [f"{100 * right:.1f} %", *(f"{value:.3f}" for value in rest)]
        if name == "learned":
            cells = [f"**{cell}**" for cell in cells]
        gap = "" if name == "learned" else signed(lead(records, name, s, "nll"))
        lines.append(
            f"| {f'**{METHODS[name]}**' if name == 'learned' else METHODS[name]} | {' | '.join(cells)} | {gap} |"
        )
    return "\n".join(lines)


def unknown_table(records: Sequence[Record]) -> Table:
    """How an unknown exercise is found: every score, on both networks."""
    head = [f"{where}, {what}" for where in doubts.NETWORKS.values() for what in ("one exercise", "all in turn")]
    return Table("AUROC of the unknown exercise, mean over wearers", ["", *head], doubts.rows(records))


def tables(records: Sequence[Record]) -> list[Table]:
    return [table(records), unknown_table(records)]


def draw(records: Sequence[Record]) -> Figure:
    """NLL and accuracy side by side, with a legend, and how unknown exercises are found: the figure of the README."""
    figure = Figure(figsize=(9.4, 6.6), layout="constrained")
    whole = figure.add_gridspec(2, 1, height_ratios=(4.0, 2.6))
    upper, lower = (figure.add_subfigure(whole[row, 0]) for row in (0, 1))
    for axis, measure in zip(upper.subplots(1, 2), ("nll", "accuracy"), strict=True):
        canvas(axis)
        _over_seconds(axis, records, measure)
    handles, labels = upper.axes[0].get_legend_handles_labels()
    upper.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    _unknown(canvas(lower.subplots()), records)
    return figure


def unknown(records: Sequence[Record]) -> Figure:
    """How each score finds the unknown exercise."""
    figure, axis = _panel(4.6, 3.6)
    _unknown(axis, records)
    return figure


PLAIN_SCORES = (
    "neighbours (5), unit length",
    "Mahalanobis",
    "Mahalanobis by class",
    "energy",
    "max probability",
    "entropy",
)
"""Those in the picture; the tables have all."""


def _unknown(axis: Axes, records: Sequence[Record]) -> None:
    """AUROC over all exercises that are asked about; bars are 95 % intervals of the mean over wearers."""
    every = doubts.asked(records)
    looks = {"same network": ("learned", "o"), "fine-tuned": ("tuned", "^")}
    found = {("library", "same network"): doubts.ours(every)}
    found |= {(name, network): doubts.rival(every, network, name) for name in PLAIN_SCORES for network in looks}
    names = ["library", *PLAIN_SCORES]
    for (name, network), by in found.items():
        mean, half = interval(list(by.values()))
        ink, shape = looks[network]
        place = names.index(name) + (0.14 if network == "fine-tuned" else -0.14) * (name != "library")
        axis.errorbar(
            [mean], [place], xerr=[[half], [half]], color=COLOURS[ink], marker=shape, ms=7 if name == "library" else 5,
            lw=0, elinewidth=1.2, label=doubts.NETWORKS[network] if name == PLAIN_SCORES[0] else None,
        )  # fmt: skip
    axis.axvline(0.5, color=COLOURS["none"], lw=1, ls=(0, (4, 2)))
    axis.set_yticks(range(len(names)), [r"$\bf{.unknown}$", *PLAIN_SCORES])
    axis.invert_yaxis()
    axis.set_xlim(None, 1)
    exercises = len({r.arguments["unknown"] for r in every})
    axis.set_title(f"AUROC, {exercises} unknown exercises", loc="left", fontsize=11, color=INK)
    axis.legend(frameon=False, fontsize=10, loc="lower right")


def over_seconds(records: Sequence[Record], measure: str) -> Figure:
    """One measure over the seconds of labels; bars are 95 % intervals of the mean over wearers."""
    figure, axis = _panel()
    _over_seconds(axis, records, measure)
    return figure


LOWEST = 70
"""Where the picture of accuracy ends: from scratch with two seconds lies far below."""
TITLES = {
    "nll": "NLL: low is good",
    "accuracy": "accuracy, %: high is good",
}


def _over_seconds(axis: Axes, records: Sequence[Record], measure: str) -> None:
    spans = seconds(records)
    times = 100 if measure == "accuracy" else 1
    shown = [name for name in methods(records) if name != "none"]
    for shift, name in enumerate(shown):
        found = [level(records, name, s, measure) for s in spans]
        # A little apart, so that bars do not hide one another.
        x = [k + 0.05 * (shift - (len(shown) - 1) / 2) for k in range(len(spans))]
        middle = [times * i.mean for i in found]
        below = [min(times * i.half, 0.6 * m) for i, m in zip(found, middle, strict=True)]
        axis.errorbar(
            x, middle, [below, [times * i.half for i in found]], color=COLOURS[name], marker=SHAPES[name],
            ms=6 if name == "learned" else 5, lw=2.6 if name == "learned" else 1.6, elinewidth=1.2,
            zorder=3 if name == "learned" else 2, label=METHODS[name],
        )  # fmt: skip
    rest = times * level(records, "none", spans[0], measure).mean
    axis.axhline(rest, color=COLOURS["none"], lw=1.6, ls=(0, (4, 2)), label=METHODS["none"])
    axis.set_xticks(range(len(spans)), [f"{s} s" for s in spans])
    axis.set_xlabel("labels for each exercise and arm")
    if measure == "nll":
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5]))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
    else:
        axis.set_ylim(min(LOWEST, 0.9 * rest), 100)
    axis.set_title(TITLES[measure], loc="left", fontsize=11, color=INK)


def reliability(records: Sequence[Record], method: str, s: int) -> Figure:
    """Accuracy by confidence, all wearers together; bars tell where its answers are."""
    figure, axis = _panel(3.3, 3.0)
    # A handful of predictions says nothing about how often such predictions are correct.
    x, y, part = zip(*(found for found in pooled(records, method, s) if found[2] >= 0.01), strict=True)
    axis.plot([0, 1], [0, 1], color=INK, lw=1, ls=(0, (3, 2)))
    axis.bar(x, part, width=0.06, color=COLOURS[method], alpha=0.3, lw=0)
    axis.plot(x, y, color=COLOURS[method], marker=SHAPES[method] or "o", ms=5, lw=1.8)
    axis.set_xlim(0, 1.02)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("confidence")
    ece = level(records, method, s, "ece").mean
    axis.set_title(f"{METHODS[method]} (ECE {ece:.3f})", loc="left", fontsize=11, color=INK)
    return figure


LAYERS = {
    "0": "1st convolution",
    "2": "2nd convolution",
    "4": "3rd convolution",
    "8": "hidden layer",
    "10": "output layer",
}


def spectrum(record: Record) -> Figure:
    """How firmly the prior holds each layer's directions, from the firmest to the loosest."""
    figure, axis = _panel(4.6, 3.3)
    inks = ["learned", "isotropic", "tuned", "ensemble", "scratch"]
    for (name, values), ink in zip(record.values["spectrum"].items(), inks, strict=True):
        x = [100 * k / (len(values) - 1) for k in range(len(values))]
        axis.plot(x, values, color=COLOURS[ink], lw=2, label=LAYERS[name])
    axis.set_yscale("log")
    axis.set_xlabel("directions of each layer, firmest first, %")
    axis.set_title("how firmly the prior holds a direction (precision)", loc="left", fontsize=11, color=INK)
    axis.legend(frameon=False, fontsize=10, labelcolor=INK)
    return figure


def _panel(width: float = 4.6, height: float = 3.3) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, canvas(figure.subplots())
