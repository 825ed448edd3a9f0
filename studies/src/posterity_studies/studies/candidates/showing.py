"""What was asked and reached, and NLL and CPU time of every method in every setting."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import shown
from posterity_studies.studies.candidates.reading import OURS, Setting, lines, settings


def tables(records: Sequence[Record]) -> list[Table]:
    said = lines(records)
    rows = [[s.asked, "yes" if s.holds else "no", s.found] for s in said]
    found = settings(records)
    families = list(dict.fromkeys(s.family for s in found))
    return [Table("What was asked", ["asked", "holds", "reached"], rows)] + [
        _family([s for s in found if s.family == family]) for family in families
    ]


def _family(found: Sequence[Setting]) -> Table:
    methods = [m for m in dict.fromkeys(m for s in found for m in s.nll) if ": " not in m or m.startswith("pixels")]
    rows = []
    for s in found:
        cells = [
            f"{s.mean(m):.3f} ({statistics.median(s.seconds[m].values()):.2g} s)" if m in s.nll else "–"
            for m in methods
        ]
        gaps = [shown(*s.gap(m, s.best), 3, True) for m in OURS if m in s.nll]
        rows.append([s.name, *cells, f"{s.best}: {', '.join(gaps)}"])
    title = f"{found[0].family}: NLL (CPU seconds), and ours minus the best rival's, paired by seed"
    return Table(title, ["", *methods, "best rival"], rows)


def draw(records: Sequence[Record]) -> Figure:
    """Ours minus each rival, setting by setting."""
    found = settings(records)
    figure = Figure(figsize=(9, 1.2 + 0.3 * len(found)), layout="constrained")
    axis = figure.subplots()
    colours = {"ours": "#0072b2", "adapt": "#56b4e9"}
    for row, s in enumerate(found):
        for method in OURS:
            if method not in s.nll:
                continue
            shift = 0.15 if method == "adapt" else -0.15
            for rival in s.rivals:
                axis.plot(s.gap(method, rival).mean, row + shift, "o", color=colours[method], alpha=0.3, ms=4)
            gap = s.gap(method, s.best)
            axis.errorbar(gap.mean, row + shift, xerr=gap.half, fmt="o", color=colours[method], ms=5)
    for method, colour in colours.items():
        axis.plot([], [], "o", color=colour, label="pt.learn" if method == "ours" else "pt.adapt")
    axis.legend(frameon=False, fontsize=8, loc="lower left")
    axis.axvline(0, color="0.6", lw=1)
    axis.set_yticks(range(len(found)), [s.name for s in found], fontsize=7)
    axis.invert_yaxis()
    axis.set(xlabel="NLL, ours minus each rival (with its interval: the best)", xlim=(-0.6, 0.3))
    axis.spines[["top", "right"]].set_visible(False)
    return figure
