"""What was asked and reached, differences set by set, names, and curves of asking."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import shown
from posterity_studies.shared.labelled import NAMED
from posterity_studies.studies.heads.methods import RIVALS
from posterity_studies.studies.heads.reading import MODALITY, NAMES, OURS, SHUFFLED, Results, asked, lines, results


def tables(records: Sequence[Record]) -> list[Table]:
    """The verdict's lines first."""
    found = results(records)
    said = lines(records)
    made = [
        Table(
            "What was asked",
            ["asked", "holds", "reached"],
            [[s.asked, "yes" if s.holds else "no", s.found] for s in said],
        )
    ]
    made += [_differences(found, shots) for shots in found.shots()]
    made += [_names(found)] if any(name in NAMED for name, _ in found.nll) else []
    if shares := asked(records):
        rules = list(next(iter(shares.values())))
        rows = [[name, *(f"{s[rule]:.2f}" for rule in rules)] for name, s in shares.items()]
        rows.append(["average", *(f"{statistics.mean(s[rule] for s in shares.values()):.2f}" for rule in rules)])
        title = (
            "Labels for the NLL that random reaches with ten a class, as a share of those (1: not reached with fewer)"
        )
        made.append(Table(title, ["", *rules], rows))
    return made


def _differences(found: Results, shots: int) -> Table:
    rows = []
    for name in found.sets(shots):
        gaps = [shown(*found.gap(name, shots, OURS, m), 3, True) for m in RIVALS]
        rows.append([f"{name} ({MODALITY[name]})", f"{found.mean(name, shots, OURS):.3f}", *gaps])
    averages = [shown(*found.average(found.sets(shots), shots, OURS, m), 3, True) for m in RIVALS]
    rows.append(["average", f"{statistics.mean(found.mean(n, shots, OURS) for n in found.sets(shots)):.3f}", *averages])
    title = (
        f"{shots} labels a class: NLL of ours, and ours minus each rival's, paired by seed (below zero: ours is better)"
    )
    return Table(title, ["", "ours", *RIVALS], rows)


def _names(found: Results) -> Table:
    rows = []
    for name in NAMED:
        for shots in found.shots():
            if (name, shots) in found.nll:
                best = found.best(name, shots)
                methods = (best, OURS, NAMES, SHUFFLED)
                rows.append([f"{name}, {shots}", best, *(f"{found.mean(name, shots, m):.3f}" for m in methods)])
    return Table("Names of the classes: NLL", ["set, labels a class", "best rival", "its", OURS, NAMES, SHUFFLED], rows)


def draw(records: Sequence[Record]) -> Figure:
    """NLL by labels a class with and without names; below, curves of asking."""
    found = results(records)
    figure = Figure(figsize=(14, 6), layout="constrained")
    axes = figure.subplots(2, 5, squeeze=False)
    for axis, name in zip(axes[0], NAMED, strict=True):
        shots = [s for s in found.shots() if (name, s) in found.nll]
        for label, colour in (
            (NAMES, "#0072b2"),
            (OURS, "#56b4e9"),
            ("logistic, unit", "#d55e00"),
            ("cosine", "#009e73"),
        ):
            if shots:
                axis.plot(
                    shots, [found.mean(name, s, label) for s in shots], "o-", color=colour, markersize=4, label=label
                )
        axis.set_title(name, fontsize=9)
        axis.set_xscale("log")
        axis.set_xlabel("labels a class")
    curves = [r for r in records if r.arguments["kind"] == "asking" and r.arguments["seed"] == 0]
    for axis, record in zip(axes[1], curves, strict=False):
        for rule, curve in record.values["rules"].items():
            axis.plot(curve["labels"], curve["nll"], linewidth=2.2 if rule == "ours" else 1, label=rule)
        axis.set_title(f"asking, {record.arguments['set']}, one draw", fontsize=9)
        axis.set_xlabel("labels")
    axes[0][0].set_ylabel("NLL")
    for axis in (axes[0][0], axes[1][0]):
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize=7)
    return figure
