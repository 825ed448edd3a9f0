"""What was asked and reached, differences set by set, the other measure, times, and the sets that constants were settled on."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.studies.tables.methods import RIVALS
from posterity_studies.studies.tables.reading import FAMILIES, OURS, Measures, Results, lines, results


def tables(records: Sequence[Record]) -> list[Table]:
    """The verdict's lines first."""
    found = results(records)
    rows = [[s.asked, "yes" if s.holds else "no", s.found] for s in lines(records)]
    made = [Table("What was asked", ["asked", "holds", "reached"], rows)]
    for family, sets in FAMILIES.items():
        if names := found.sets(sets):
            second = "Accuracy" if family == "classes" else "RMSE, in standard deviations of the training targets"
            made.append(_differences(found, family, names))
            made.append(_means(found, f"{second}: {family}", names, found.second, 3))
            made.append(_means(found, f"CPU seconds of learning and predicting: {family}", names, found.seconds, 2))
    settling = results(records, "candidates")
    if settling.nll:
        made.append(_settling(settling))
    return made


def _differences(found: Results, family: str, names: Sequence[str]) -> Table:
    methods = [m for m in RIVALS if any(m in found.nll[name] for name in names)]
    rows = []
    for name in names:
        gaps = [shown(*found.gap(name, m), 3, True) if m in found.nll[name] else "–" for m in methods]
        rows.append([name, f"{found.mean(name, OURS):.3f}", *gaps, shown(*found.to_candidate(name), 3, True)])
    averages = [shown(*found.average(names, m), 3, True) for m in methods]
    nearest = shown(*interval([found.to_candidate(name).mean for name in names]), 3, True)
    rows.append(["average", f"{statistics.mean(found.mean(n, OURS) for n in names):.3f}", *averages, nearest])
    title = f"NLL, {family}: ours, and ours minus each other's, paired by split (below zero: ours is better)"
    return Table(title, ["", OURS, *methods, "best candidate"], rows)


def _means(found: Results, title: str, names: Sequence[str], measures: Measures, digits: int) -> Table:
    methods = [OURS, *(m for m in RIVALS if any(m in found.nll[name] for name in names))]
    rows = [[name, *(f"{statistics.mean(measures[name][m].values()):.{digits}f}" for m in methods)] for name in names]
    means = [statistics.mean(statistics.mean(measures[name][m].values()) for name in names) for m in methods]
    return Table(title, ["", *methods], [*rows, ["average", *(f"{mean:.{digits}f}" for mean in means)]])


def _settling(found: Results) -> Table:
    kinds = list(dict.fromkeys(candidate for each in found.candidates.values() for candidate in each))
    rows = []
    for name, each in found.candidates.items():
        alone = [f"{statistics.mean(each[kind].values()):.3f}" if kind in each else "–" for kind in kinds]
        rows.append([name, f"{found.mean(name, OURS):.3f}", *alone, f"{found.to_candidate(name).mean:+.3f}"])
    gaps = [found.to_candidate(name).mean for name in found.candidates]
    ours = statistics.mean(found.mean(name, OURS) for name in found.nll)
    rows.append(["average", f"{ours:.3f}", *("" for _ in kinds), f"{statistics.mean(gaps):+.3f}"])
    title = "Sets that constants were settled on: NLL of ours and of each candidate, and the difference to the best"
    return Table(title, ["", OURS, *kinds, "to the best"], rows)


def draw(records: Sequence[Record]) -> Figure:
    """Ours minus each rival, a point a set."""
    found = results(records)
    figure = Figure(figsize=(11, 4), layout="constrained")
    for axis, (family, sets) in zip(figure.subplots(1, 2), FAMILIES.items(), strict=True):
        names = found.sets(sets)
        methods = [m for m in RIVALS if any(m in found.nll[name] for name in names)]
        for place, method in enumerate(methods):
            gaps = [found.gap(name, method).mean for name in names if method in found.nll[name]]
            axis.plot(gaps, [place] * len(gaps), "o", color="#0072b2", alpha=0.5)
            axis.plot([statistics.mean(gaps)], [place], "|", color="#d55e00", markersize=22, markeredgewidth=2)
        axis.axvline(0, color="0.5", linewidth=0.8)
        axis.set_yticks(range(len(methods)), methods)
        axis.set_xscale("symlog", linthresh=0.1)
        axis.set_title(family, fontsize=10)
        axis.set_xlabel("NLL of ours minus the rival's")
    return figure
