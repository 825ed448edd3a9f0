"""Differences between the priors, all measures by method, what was chosen, how flat the modes are, and the paper's figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.shared.shots import SETS
from posterity_studies.studies.few_shot_modes.reading import NAMES, RIVALS, Found, gap, modes, results, said

METHODS = {
    "learned": "learned prior",
    "published": "isotropic, γ ≤ 1e-6",
    "tuned": "isotropic, tuned",
    "nn": "network alone",
    "dropout": "MC dropout",
    "ensemble": "ensemble of five",
}
COLOURS = {
    "learned": "#0072b2",
    "published": "#d55e00",
    "tuned": "#56b4e9",
    "nn": "#999999",
    "dropout": "#cc79a7",
    "ensemble": "#009e73",
}
ALL = {**NAMES, "calibration auroc": "AUROC of errors by confidence", "brier": "Brier score"}


def tables(records: Sequence[Record]) -> list[Table]:
    """The verdicts first."""
    found = results(records)
    return [
        _verdicts(found),
        _gaps(found),
        *(_measure(found, m) for m in ALL),
        _at_mode(found),
        _choices(found),
        _flat(records),
    ]


def _verdicts(found: Found) -> Table:
    rows = [
        [name, *(shown(*gap(found, "learned", base, m), 3, sign=True) for base in RIVALS), said(found, m)]
        for m, name in NAMES.items()
    ]
    columns = ["learned minus", *RIVALS.values(), "verdict"]
    return Table("The declared verdicts, paired over sets × seeds", columns, rows)


def _settings(found: Found) -> list[tuple[str, int]]:
    """Sets and shots there are, in the order in which studies have them."""
    order = {name: i for i, name in enumerate(SETS)}
    both = {draw[:2] for draws in found.values() for draw in draws}
    return sorted(both, key=lambda pair: (pair[1], order.get(pair[0], 99)))


def _gaps(found: Found) -> Table:
    rows = []
    for name, shots in _settings(found):
        cells = [
            shown(*gap(found, "learned", b, m, name, shots), 3, sign=True) for b in RIVALS for m in ("nll", "accuracy")
        ]
        rows.append([f"{SETS.get(name, name)}, {shots} shots", *cells])
    columns = ["learned minus", *(f"{NAMES[m]}, {METHODS[b]}" for b in RIVALS for m in ("nll", "accuracy"))]
    return Table("By set, paired by seed", columns, rows)


def _measure(found: Found, measure: str) -> Table:
    present = [method for method in METHODS if method in found]
    rows = []
    for name, shots in _settings(found):
        row = [f"{SETS.get(name, name)}, {shots} shots"]
        for method in present:
            row.append(
                shown(
                    *interval(
                        [v[measure] for d, v in found[method].items() if d[:2] == (name, shots) and measure in v]
                    ),
                    3,
                )
            )
        rows.append(row)
    every = [interval([v[measure] for v in found[method].values() if measure in v]).mean for method in present]
    rows.append(["average of draws", *(shown(mean, float("nan"), 3) for mean in every)])
    return Table(ALL[measure], ["", *(METHODS[m] for m in present)], rows)


def _at_mode(found: Found) -> Table:
    """What draws add to the mode."""
    rows = []
    for method in ("learned", *RIVALS):
        draws = found.get(method, {}).values()
        row = [
            interval([v[f"{where}{m}"] for v in draws if f"{where}{m}" in v]).mean
            for m in NAMES
            for where in ("mode ", "")
        ]
        rows.append([METHODS[method], *(shown(mean, float("nan"), 3) for mean in row)])
    columns = ["", *(f"{NAMES[m]}, {where}" for m in NAMES for where in ("mode", "draws"))]
    return Table("At the mode and with draws, average of draws of pictures", columns, rows)


def _choices(found: Found) -> Table:
    rows = []
    for method in ("learned", *RIVALS):
        for (name, shots, seed), v in sorted(found.get(method, {}).items()):
            place = f"{SETS.get(name, name)}, {shots} shots, seed {seed}"
            rows.append(
                [
                    place,
                    METHODS[method],
                    f"{v['strength']:g}",
                    v["scales"],
                    f"{v['beta']:g}",
                    f"{v['tau']:g}",
                    f"{v['seconds']:.0f}",
                ]
            )
    return Table("What validation chose", ["", "prior", "share or γ", "scales", "β", "τ", "CPU seconds"], rows)


def _flat(records: Sequence[Record]) -> Table:
    rows = [
        [
            f"{SETS.get(draw[0], draw[0])}, {draw[1]} shots, seed {draw[2]}",
            name,
            *(f"{values[k]:g}" for k in ("first", "last", "gained", "held")),
            str(values.get("pieces", "–")),
        ]
        for draw, name, values in modes(records)
    ]
    columns = ["", "mode", "first epoch", "least", "gained in the last quarter", "validation NLL", "pieces to the end"]
    return Table("The objective in summed nats over epochs", columns, rows)


def draw(records: Sequence[Record]) -> Figure:
    """As in the paper: each measure over sets, average first."""
    found = results(records)
    present = [method for method in METHODS if method in found]
    settings = _settings(found)
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    for axis, (measure, name) in zip(figure.subplots(1, len(NAMES)), NAMES.items(), strict=True):
        for method in present:
            groups = [list(found[method])] + [[d for d in found[method] if d[:2] == one] for one in settings]
            for place, draws in enumerate(groups):
                values = [found[method][d][measure] for d in draws if measure in found[method][d]]
                if values:
                    x = place + 0.12 * (present.index(method) - len(present) / 2)
                    axis.plot([x] * len(values), values, ".", color=COLOURS[method], alpha=0.35, markersize=4)
                    axis.plot([x], [sum(values) / len(values)], "_", color=COLOURS[method], markersize=9)
        labels = ["average", *(f"{SETS.get(name, name)}\n{shots}" for name, shots in settings)]
        axis.set_xticks(range(len(labels)), labels, fontsize=7)
        axis.set_title(name, fontsize=10)
        axis.grid(axis="y", color="0.93")
        axis.spines[["top", "right"]].set_visible(False)
    for method in present:
        axis.plot([], [], "o", color=COLOURS[method], label=METHODS[method], markersize=4)
    axis.legend(frameon=False, fontsize=7)
    return figure
