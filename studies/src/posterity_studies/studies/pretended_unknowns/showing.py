"""Tables by pair and by way, and a figure of what each rule gains."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import shown
from posterity_studies.studies.pretended_unknowns.methods import SETS
from posterity_studies.studies.pretended_unknowns.reading import (
    RULES,
    WAYS,
    agreement,
    alarms,
    auroc,
    best_rival,
    gains,
    pairs,
    regret,
)


def tables(records: Sequence[Record]) -> list[Table]:
    return [_by_pair(records), _by_way(records), _alarms(records)]


def _by_pair(records: Sequence[Record]) -> Table:
    rows = [
        [
            SETS[p[0]].way,
            " / ".join(p),
            *(f"{auroc(records, p, 'rules', rule):.3f}" for rule in RULES),
            f"{best_rival(records, p):.3f}",
        ]
        for p in pairs(records)
    ]
    title = "AUROC by pair and rule; the best of neighbours, Mahalanobis, energy and max probability in hindsight"
    return Table(title, ["network", "known / unknown", *RULES, "best rival"], rows)


def _by_way(records: Sequence[Record]) -> Table:
    rows = []
    for way in (way for way in WAYS if pairs(records, way)):
        for rule in RULES[1:]:
            gain = shown(*gains(records, rule, way), digits=3, sign=True)
            rows.append([way, rule, gain, f"{regret(records, rule, way):.3f}", f"{agreement(records, way):.2f}"])
        rows.append([way, RULES[0], "", f"{regret(records, RULES[0], way):.3f}", ""])
    columns = ["network", "rule", "gain in AUROC", "behind the best rival", "correlation, pretended and unknown"]
    return Table("What each rule gains on the library's, over pairs", columns, rows)


def _alarms(records: Sequence[Record]) -> Table:
    rows = []
    for name in ("rows at random", "one of every class"):
        mean, half = alarms(records, name)
        rows.append([name, shown(100 * mean, 100 * half)])
    title = (
        "False alarms at a nominal 5 %, in per cent of new known inputs, frozen features with a few examples a class"
    )
    return Table(title, ["left out together", "false alarms"], rows)


def draw(records: Sequence[Record]) -> Figure:
    every = pairs(records)
    figure = Figure(figsize=(9, 1.2 + 0.3 * len(every)), layout="constrained")
    axis = figure.subplots()
    for rule, colour in zip(RULES[1:], ("#0072b2", "#56b4e9", "#d55e00", "#8a8a8b"), strict=True):
        gain = [auroc(records, p, "rules", rule) - auroc(records, p, "rules", "library") for p in every]
        axis.plot(gain, range(len(every)), "o", color=colour, ms=5, label=rule)
    axis.axvline(0, color="0.3", lw=1)
    axis.set_yticks(range(len(every)), [" / ".join(p) for p in every], fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="AUROC less that of the library's fixed weights")
    axis.legend(fontsize=8)
    axis.grid(color="0.9")
    axis.spines[["top", "right"]].set_visible(False)
    return figure
