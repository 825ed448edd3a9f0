"""The warmest temperatures that each way bears, accuracy and NLL over temperatures beside the paper's, and both as curves."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.shared.priors import COLOURS
from posterity_studies.studies.cold_posterior_large.methods import PRIORS, WAYS
from posterity_studies.studies.cold_posterior_large.reading import (
    LINEAR,
    around,
    curve,
    gammas,
    modes,
    paper_curve,
    paper_warmest,
    power,
    untempered,
    warmest_by_seed,
    ways,
)

LINES = ["-", ":"]
DIGITS = {"accuracy": 1, "nll": 2}
TITLES = {"accuracy": "Accuracy in %", "nll": "NLL in nats"}


def tables(records: Sequence[Record]) -> list[Table]:
    """The claim first, then what no temperature is needed for, then curves."""
    return [
        _warmest(records),
        _untempered(records),
        *(_over_temperatures(records, gamma, measure) for measure in DIGITS for gamma in gammas(records)),
        _arrival(records),
        *_flat(records),
    ]


def _warmest(records: Sequence[Record]) -> Table:
    rows = [
        [WAYS[way], f"{gamma:g}", *(power(warmest_by_seed(records, kind, gamma, way)) for kind in PRIORS)]
        for way in ways(records)
        for gamma in gammas(records)
    ]
    rows += [
        ["the paper's draws", f"{gamma:g}", *(power({0: paper_warmest(gamma, kind)}) for kind in PRIORS)]
        for gamma in (1e-3, 1e-5)
    ]
    return Table("The warmest τ within a point of the mode, median of seeds", ["way", "γ", *PRIORS.values()], rows)


def _untempered(records: Sequence[Record]) -> Table:
    rows = [["the mode", *_cells([modes(records, kind, m) for m in DIGITS for kind in PRIORS])]]
    for name, text in LINEAR.items():
        rows.append(
            [f"function space, {text}", *_cells([untempered(records, k, name, m) for m in DIGITS for k in PRIORS])]
        )
    for way in ways(records):
        for gamma in gammas(records):
            found = [_at(records, kind, gamma, way, 1.0, m) for m in DIGITS for kind in PRIORS]
            rows.append([f"{WAYS[way]}, γ = {gamma:g}", *_cells(found)])
    columns = ["", *(f"{short}, {prior}" for short in ("accuracy", "NLL") for prior in PRIORS.values())]
    return Table("Without tempering, τ = 1, mean ± 95 % over seeds", columns, rows)


def _cells(found: Sequence[dict[int, float]]) -> list[str]:
    """Accuracies first, then NLLs, of both priors each."""
    digits = [d for d in DIGITS.values() for _ in PRIORS]
    return [shown(*interval(list(f.values())), d) for f, d in zip(found, digits, strict=True)]


def _at(records: Sequence[Record], kind: str, gamma: float, way: str, tau: float, measure: str) -> dict[int, float]:
    found = {seed: curve(r, gamma, way, measure) for seed, r in around(records, kind).items()}
    return {seed: values[tau] for seed, values in found.items() if tau in values}


def _over_temperatures(records: Sequence[Record], gamma: float, measure: str) -> Table:
    taus = sorted({t for r in records for of_way in r.arguments.get("taus", {}).values() for t in of_way})
    rows = []
    for tau in taus:
        row = [f"{tau:g}"]
        for way in ways(records):
            both = [list(_at(records, kind, gamma, way, tau, measure).values()) for kind in PRIORS]
            row.append(" / ".join(shown(interval(s).mean, float("nan"), DIGITS[measure]) for s in both))
        if measure == "accuracy":
            theirs = [paper_curve(gamma, kind).get(tau) for kind in PRIORS]
            row.append(" / ".join("–" if p is None else f"{p:.1f}" for p in theirs))
        rows.append(row)
    columns = ["τ", *(WAYS[way] for way in ways(records)), *(["the paper's draws"] if measure == "accuracy" else [])]
    return Table(f"{TITLES[measure]}, γ = {gamma:g}, learned / isotropic, mean over seeds", columns, rows)


def _arrival(records: Sequence[Record]) -> Table:
    """How far training came."""
    rows = []
    for kind, prior in PRIORS.items():
        found = [r.values["training"] for r in around(records, kind).values()]
        parts = [interval([f[name] for f in found]).mean for name in ("objective before", "objective", "nll")]
        rows.append([prior, *(f"{part:.2g}" for part in parts)])
    columns = ["prior", "before training", "after", "of it NLL"]
    return Table("The objective in nats a training picture, mean over seeds", columns, rows)


def _flat(records: Sequence[Record]) -> list[Table]:
    """Modes that were trained until the objective was flat."""
    rows = []
    for kind, prior in PRIORS.items():
        for r in (r for r in records if (r.arguments["who"], r.arguments["prior"]) == ("mode", kind)):
            line = r.values["training"]
            numbers = [f"{line[name]:g}" for name in ("first", "half", "last", "gained")]
            found = r.values["mode"]
            rows.append([prior, str(r.arguments["seed"]), f"{found['accuracy']:.1f}", f"{found['nll']:.3f}", *numbers])
    columns = ["prior", "seed", "accuracy", "NLL", "first epoch", "half", "least", "gained in the last quarter"]
    return [Table("Flat modes: all test pictures, and the objective in summed nats", columns, rows)] if rows else []


def draw(records: Sequence[Record]) -> Figure:
    shown_ways = ways(records)
    panels = [*shown_ways, "paper"]
    figure = Figure(figsize=(2.5 * len(panels), 5.4), layout="constrained")
    axes = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False)
    for column, way in enumerate(shown_ways):
        for row, measure in enumerate(DIGITS):
            _curves(axes[row][column], records, way, measure)
        axes[0][column].set_title(WAYS[way].replace(", ", ",\n"), fontsize=10)
    last = axes[0][-1]
    for kind in PRIORS:
        for gamma, line in zip((1e-3, 1e-5), LINES, strict=True):
            theirs = paper_curve(gamma, kind)
            last.plot(list(theirs), list(theirs.values()), line, color=COLOURS[kind])
    last.set_title("the paper's draws", fontsize=10)
    last.tick_params(labelbottom=True)
    last.set_xlabel("temperature τ")
    _legend(axes[1][-1])
    for axis in axes.flatten():
        axis.set(xscale="log", xlim=(5e-16, 3))
        axis.grid(color="0.93")
        axis.spines[["top", "right"]].set_visible(False)
    for row, measure in enumerate(DIGITS):
        axes[row][0].set_ylabel(TITLES[measure])
    for axis in axes[1][:-1]:
        axis.set_xlabel("temperature τ")
    axes[0][0].set_ylim(0, 100)
    axes[1][0].set(yscale="log", yticks=(1, 3, 10, 30), yticklabels=("1", "3", "10", "30"))
    axes[1][0].minorticks_off()
    return figure


def _curves(axis: Axes, records: Sequence[Record], way: str, measure: str) -> None:
    for kind in PRIORS:
        for gamma, line in zip(gammas(records), LINES, strict=False):
            taus = sorted({tau for r in around(records, kind).values() for tau in curve(r, gamma, way, measure)})
            means = [interval(list(_at(records, kind, gamma, way, tau, measure).values())).mean for tau in taus]
            axis.plot(taus, means, line, color=COLOURS[kind], marker="o", markersize=2.5)
        level = interval(list(untempered(records, kind, "calibrated", measure).values())).mean
        axis.axhline(level, color=COLOURS[kind], linewidth=0.8, linestyle=(0, (1, 3)), zorder=0)


def _legend(axis: Axes) -> None:
    axis.set_axis_off()
    for kind, prior in PRIORS.items():
        axis.plot([], [], "-", color=COLOURS[kind], label=f"{prior} prior")
    for gamma, line in zip((1e-3, 1e-5), LINES, strict=True):
        axis.plot([], [], line, color="0.5", label=f"γ = {gamma:g}")
    axis.plot([], [], color="0.5", linewidth=0.8, linestyle=(0, (1, 3)), label="function space,\nleave-one-out scales")
    axis.legend(frameon=False, fontsize=9, loc="center left")
