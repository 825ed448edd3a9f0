"""A table for each γ, and the ladder as a figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.studies.bounds.paper import RUNGS
from posterity_studies.studies.bounds.reading import readable

COLUMNS = [
    "",
    "paper: Catoni",
    "Catoni estimate",
    "McAllester estimate",
    "certificate, 95 %",
    "error of one draw",
    "KL, nats",
    "test error, averaged",
    "seeds",
]


def tables(records: Sequence[Record]) -> list[Table]:
    """A ladder for each γ: the paper's, and a larger one at which bounds are below one."""
    found = []
    for gamma in sorted({r.arguments["gamma"] for r in records}):
        here = [r for r in records if r.arguments["gamma"] == gamma]
        share = here[0].arguments.get("share", 1.0)
        found.append(
            Table(f"γ = {gamma:g}, learned prior: {share:g} of the source's curvature + γ", COLUMNS, _rows(here))
        )
    return found


def _rows(records: Sequence[Record]) -> list[list[str]]:
    rows = []
    for rung, (title, paper) in RUNGS.items():
        found = [r.values[rung] for r in records if rung in r.values]
        if found:
            measures = ("catoni", "mcallester", "certificate", "gibbs", "kl", "test averaged")
            by = {m: interval([v[m] for v in found]) for m in measures}
            texts = [
                shown(*by[m], digits=0, thousands=True) if m == "kl" else shown(*by[m], digits=3) for m in measures
            ]
            rows.append([title, "" if paper is None else f"{paper:.3f}", *texts, str(len(found))])
    return rows


def draw(records: Sequence[Record]) -> Figure:
    records = readable(records)
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axis = figure.subplots()
    rungs = [rung for rung in RUNGS if any(rung in r.values for r in records)]
    for key, colour, name in (
        ("catoni", "#0072b2", "Catoni estimate"),
        ("mcallester", "#56b4e9", "McAllester estimate"),
        ("certificate", "#d55e00", "certificate (valid)"),
        ("gibbs", "0.6", "error of one draw"),
    ):
        samples = [[min(1.0, r.values[rung][key]) for r in records if rung in r.values] for rung in rungs]
        means, halves = zip(*map(interval, samples), strict=True)
        axis.errorbar(range(len(rungs)), means, halves, marker="o", markersize=4, color=colour, label=name, capsize=2)
    paper = [RUNGS[rung][1] for rung in rungs]
    points = [(i, value) for i, value in enumerate(paper) if value is not None]
    axis.plot([i for i, _ in points], [v for _, v in points], "k*", label="the paper's Catoni")
    axis.set_xticks(range(len(rungs)), [RUNGS[r][0].replace(": ", ":\n") for r in rungs], rotation=25, ha="right")
    axis.set(ylabel="bound (1 where above)", ylim=(0, 1.05))
    axis.grid(axis="y", color="0.9")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.7))
    return figure
