"""What was asked, differences set by set, measures method by method; the paper's form of figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import shown
from posterity_studies.studies.few_shot.methods import NAMES
from posterity_studies.studies.few_shot.reading import Results, Setting, decided, lines, results

SHORT = {
    "ours": "ours",
    "same n": "ours, half of labels",
    "cross": "probe, five folds",
    "probe": "probe",
    "tuned": "fine-tuned",
    "dropout": "MC dropout",
    "laplace": "laplace-torch",
    "ensemble": "ensemble of 5",
}
COLOURS = {
    "ours": "#0072b2",
    "cross": "#56b4e9",
    "probe": "#d55e00",
    "tuned": "#e69f00",
    "dropout": "#cc79a7",
    "laplace": "#009e73",
    "ensemble": "#000000",
}
MEASURES = {
    "accuracy": "Accuracy",
    "nll": "NLL in mean nats",
    "ece": "Expected calibration error",
    "calibration auroc": "Calibration AUROC: wrong answers distinguished from right ones",
    "auroc": "AUROC of CIFAR-10 as unknown inputs",
    "seconds": "CPU seconds after the features: all fitting, choosing and predicting",
}


def tables(records: Sequence[Record]) -> list[Table]:
    """Asked and reached, then all measures."""
    found = results(records)
    whole = decided(found)
    asked = Table(
        "What was asked of the exact head",
        ["asked", "holds", "reached"],
        [[line.asked, "yes" if line.holds else "no", line.found] for line in lines(records)],
    )
    shown_here = whole if whole.found else found
    made = [asked] if whole.found else []
    for size in shown_here.sizes:
        made += [_differences(shown_here, size), *(_measure(shown_here, size, measure) for measure in MEASURES)]
    return made


def _differences(found: Results, size: int) -> Table:
    rivals = [m for m in SHORT if m != "ours"]
    settings = found.settings(size)
    rows = [
        [str(s), *(shown(*found.difference(s, "ours", m, "nll"), digits=3, sign=True) for m in rivals)]
        for s in settings
    ]
    rows.append(["average", *(shown(*found.average(settings, "ours", m, "nll"), digits=3, sign=True) for m in rivals)])
    title = f"NLL of ours minus each other's at {size} px, paired by seed (below zero: ours is better)"
    return Table(title, ["", *(SHORT[m] for m in rivals)], rows)


def _measure(found: Results, size: int, measure: str) -> Table:
    digits = 1 if measure == "seconds" else 3
    rows, columns = [], list(SHORT)
    for setting in found.settings(size):
        means = [found.mean(setting, m, measure) for m in columns]
        rows.append([str(setting), *("–" if mean is None else f"{mean:.{digits}f}" for mean in means)])
    rows.append(["average", *_averages(found, found.settings(size), measure, digits)])
    return Table(f"{MEASURES[measure]}, {size} px", ["", *SHORT.values()], rows)


def _averages(found: Results, settings: Sequence[Setting], measure: str, digits: int) -> list[str]:
    """Over all settings; a star where a method took part in some alone."""
    made = []
    for method in SHORT:
        means = [mean for s in settings if (mean := found.mean(s, method, measure)) is not None]
        star = "" if len(means) == len(settings) else "*"
        made.append(f"{statistics.mean(means):.{digits}f}{star}" if means else "–")
    return made


def draw(records: Sequence[Record]) -> Figure:
    """The paper's form: every measure by shots, averaged over the sets that have all of them; below, NLL set by set."""
    found = decided(results(records))
    found = found if found.found else results(records)
    measures = ("accuracy", "nll", "ece", "calibration auroc", "auroc")
    figure = Figure(figsize=(14, 6), layout="constrained")
    axes = figure.subplots(2, 5, squeeze=False)
    settings = found.settings(found.main_size) if found.found else []
    everywhere = _shots_of_all(settings)
    for axis, measure in zip(axes[0], measures, strict=True):
        for method, colour in COLOURS.items():
            points = [
                (shots, mean)
                for shots in everywhere
                if (mean := _over_sets(found, [s for s in settings if s.shots == shots], method, measure)) is not None
            ]
            if points:
                width = 2.2 if method == "ours" else 1.2
                axis.plot(
                    *zip(*points, strict=True), "o-", color=colour, linewidth=width, markersize=4, label=NAMES[method]
                )
        axis.set_title(MEASURES[measure].split(":")[0].split(" as ")[0], fontsize=9)
        axis.set_xticks(everywhere, [str(n) for n in everywhere])
    names = list(dict.fromkeys(s.name for s in settings))
    for axis, name in zip(axes[1], names[:5], strict=False):
        here = [s for s in settings if s.name == name]
        for method, colour in COLOURS.items():
            line = [(s.shots, mean) for s in here if (mean := found.mean(s, method, "nll")) is not None]
            if line:
                width = 2.2 if method == "ours" else 1.2
                axis.plot(*zip(*line, strict=True), "o-", color=colour, linewidth=width, markersize=4)
        axis.set_title(f"NLL, {str(here[0]).split(',')[0]}", fontsize=9)
        axis.set_xticks([s.shots for s in here], [str(s.shots) for s in here])
        axis.set_xlabel("pictures a class")
    for axis in axes.flat:
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside upper center", ncols=4)
    return figure


def _shots_of_all(settings: Sequence[Setting]) -> list[int]:
    sets = {s.name for s in settings}
    return sorted(n for n in {s.shots for s in settings} if {s.name for s in settings if s.shots == n} == sets)


def _over_sets(found: Results, settings: Sequence[Setting], method: str, measure: str) -> float | None:
    means = [found.mean(s, method, measure) for s in settings]
    known = [mean for mean in means if mean is not None]
    return statistics.mean(known) if known and len(known) == len(means) else None
