"""Differences between the priors, measures by method, and both as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import shown
from posterity_studies.shared.shots import SETS
from posterity_studies.studies.last_stage.methods import NAMES
from posterity_studies.studies.last_stage.reading import Found, average, difference, results, sample

MEASURES = {
    "accuracy": "Accuracy",
    "nll": "NLL in mean nats",
    "ece": "Expected calibration error",
    "auroc": "AUROC of CIFAR-10 as unknown inputs",
    "seconds": "CPU seconds after the maps of the stage before",
}
BASES = {
    "isotropic": "isotropic",
    "head": "exact head",
    "plain": "fine-tuned",
    "l2-sp": "L2-SP",
    "map": "mode, learned",
    "paper": "paper's recipe",
}
COLOURS = {
    "learned": "#0072b2",
    "isotropic": "#56b4e9",
    "head": "#009e73",
    "probe": "#999999",
    "plain": "#e69f00",
    "l2-sp": "#d55e00",
    "map": "#cc79a7",
    "paper": "#000000",
}


def _present(found: Found) -> list[str]:
    """Methods that have any result."""
    return [method for method in NAMES if any(method in methods for methods in found.values())]


def tables(records: Sequence[Record]) -> list[Table]:
    """Differences of the learned prior's to all others, all measures, and what was chosen."""
    found = results(records)
    made = [_differences(found, measure) for measure in ("nll", "auroc")]
    made += [_measure(found, measure) for measure in MEASURES]
    return [*made, _choices(found)]


def _differences(found: Found, measure: str) -> Table:
    rows = [
        [SETS.get(name, name), *(shown(*difference(found, name, "learned", base, measure), 3, True) for base in BASES)]
        for name in found
    ]
    rows.append(["average", *(shown(*average(found, "learned", base, measure), 3, True) for base in BASES)])
    title = MEASURES[measure].split(" in ")[0]
    return Table(f"{title}: the learned prior minus others, paired by seed", ["", *BASES.values()], rows)


def _measure(found: Found, measure: str) -> Table:
    rows = []
    means: dict[str, list[float]] = {}
    for name in found:
        row = [SETS.get(name, name)]
        for method in _present(found):
            values = list(sample(found, name, method, measure).values())
            means.setdefault(method, []).extend([statistics.mean(values)] if values else [])
            row.append(f"{statistics.mean(values):.{0 if measure == 'seconds' else 3}f}" if values else "–")
        rows.append(row)
    digits = 0 if measure == "seconds" else 3
    rows.append(["average", *(f"{statistics.mean(v):.{digits}f}" if v else "–" for v in means.values())])
    return Table(MEASURES[measure], ["", *_present(found)], rows)


def _choices(found: Found) -> Table:
    """What leave-one-out chose, and what it says of the head alone."""
    rows = []
    for name, methods in found.items():
        for method in ("learned", "isotropic"):
            for seed, values in sorted(methods.get(method, {}).items()):
                numbers = [f"{values[key]:g}" if key in values else "–" for key in ("share", "floor", "head")]
                alone = methods.get("head", {}).get(seed, {}).get("loo")
                rest = [
                    f"{values['loo']:.3f}",
                    "–" if alone is None else f"{alone:.3f}",
                    "yes" if values["edge"] else "no",
                ]
                rows.append([SETS.get(name, name), method, str(seed), *numbers, *rest])
    columns = ["", "prior", "seed", "share", "floor", "head", "left-out NLL", "of the exact head", "at an edge"]
    return Table("What leave-one-out chose", columns, rows)


def draw(records: Sequence[Record]) -> Figure:
    """Every method's NLL and AUROC by set: seeds as dots, means as bars."""
    found = results(records)
    present = _present(found)
    figure = Figure(figsize=(10, 1.6 + 0.6 * len(present)), layout="constrained")
    axes = figure.subplots(2, max(1, len(found)), squeeze=False, sharey=True)
    for row, measure in zip(axes, ("nll", "auroc"), strict=True):
        for axis, name in zip(row, found, strict=False):
            for height, method in enumerate(present):
                values = list(sample(found, name, method, measure).values())
                axis.plot(values, [height] * len(values), "o", color=COLOURS[method], alpha=0.6, markersize=5)
                if values:
                    axis.plot([statistics.mean(values)], [height], "|", color="black", markersize=13)
            axis.set_title(f"{SETS.get(name, name)}: {MEASURES[measure].split(' in ')[0].split(' as ')[0]}", fontsize=9)
            axis.grid(axis="x", color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
        row[0].set_yticks(range(len(present)), [NAMES[m].removeprefix("ours: ") for m in present], fontsize=8)
    axes[0][0].set_ylim(len(present) - 0.5, -0.5)
    return figure
