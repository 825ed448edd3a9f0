"""A table for each γ, the number of images, and the ladder as a figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.shared.published import BOUNDS, EXAMPLES
from posterity_studies.studies.bounds.reading import RUNGS, at, mean_of, readable, searched_by_draws, with_more_images

COLUMNS = [
    "",
    "paper: Catoni",
    "Catoni estimate",
    "paper: McAllester",
    "McAllester estimate",
    "certificate, 95 %",
    "error of one draw",
    "KL, nats",
    "test error, averaged",
    "seeds",
]


def tables(records: Sequence[Record]) -> list[Table]:
    """A ladder for each γ: the paper's three, and a larger one at which bounds are below one; then the number of images."""
    found = []
    for gamma in sorted({r.arguments["gamma"] for r in records}):
        here = at(records, gamma)
        share = here[0].arguments.get("share", 1.0)
        found.append(
            Table(f"γ = {gamma:g}, learned prior: {share:g} of the source's curvature + γ", COLUMNS, _rows(here))
        )
    drawn = searched_by_draws(records)
    if drawn:
        titles = {RUNGS[rung] for rung in ("grid search", "learned prior")}
        rows = [row for row in _rows(drawn) if row[0] in titles]
        found.append(Table("The grid search by the mean over 100 draws, as published, γ = 100", COLUMNS, rows))
    return [*found, _by_number(records)]


def _rows(records: Sequence[Record]) -> list[list[str]]:
    rows = []
    for rung, title in RUNGS.items():
        found = [r.values[rung] for r in records if rung in r.values]
        if not found:
            continue
        by = {m: interval([v[m] for v in found]) for m in found[0]}
        theirs = [f"{pair.mean:.3f} ± {pair.spread:.3f}" for pair in BOUNDS.get(rung, {}).values()] or ["", ""]
        texts = [shown(*by[m], digits=3) for m in ("catoni", "mcallester", "certificate", "gibbs")]
        kl = shown(*by["kl"], digits=0, thousands=True)
        last = [*texts[2:], kl, shown(*by["test averaged"], digits=3), str(len(found))]
        rows.append([title, theirs[0], texts[0], theirs[1], texts[1], *last])
    return rows


def _by_number(records: Sequence[Record]) -> Table:
    """Catoni's estimate over the number of images, where bounds are below one; last, what the paper's would do at the least."""
    gamma = max(r.arguments["gamma"] for r in records)
    sizes = sorted({r.arguments["examples"] for r in records if r.arguments["gamma"] == gamma})
    by_size = {n: mean_of(at(records, gamma, n), "catoni") for n in sizes}
    rows = [
        [title, *(f"{by_size[n][rung]:.3f}" if rung in by_size[n] else "–" for n in sizes), _more(records, rung)]
        for rung, title in RUNGS.items()
        if any(rung in found for found in by_size.values())
    ]
    columns = ["", *(f"{n:,} images" for n in sizes), f"{EXAMPLES:,}, same KL and error"]
    return Table(f"Catoni's estimate over the number of images, γ = {gamma:g}, mean over seeds", columns, rows)


def _more(records: Sequence[Record], rung: str) -> str:
    here = [r for r in readable(records) if rung in r.values]
    return f"{with_more_images(here, rung):.3f}" if here else "–"


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
    points = [(i, BOUNDS[rung]["catoni"].mean) for i, rung in enumerate(rungs) if rung in BOUNDS]
    axis.plot([i for i, _ in points], [v for _, v in points], "k*", label="the paper's Catoni")
    axis.set_xticks(range(len(rungs)), [RUNGS[r].replace(": ", ":\n") for r in rungs], rotation=25, ha="right")
    axis.set(ylabel="bound (1 where above)", ylim=(0, 1.05))
    axis.grid(axis="y", color="0.9")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.7))
    return figure
