"""Tables protocol by protocol; accuracy and NLL by images per class as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared import published
from posterity_studies.shared.intervals import interval, paired, shown
from posterity_studies.shared.priors import COLOURS, PRIORS
from posterity_studies.studies.transfer.cells import ONE_STRENGTH
from posterity_studies.studies.transfer.reading import by_seed, mean, pairs_of, with_pair, with_protocol


def tables(records: Sequence[Record]) -> list[Table]:
    """Protocol by protocol."""
    return [*_fair_tables(records), *_published_tables(records), *_all_data_tables(records)]


def _fair_tables(records: Sequence[Record]) -> list[Table]:
    """Paired differences to the tuned isotropic prior around the learned mean."""
    made = []
    for source, target in pairs_of(records):
        rows = []
        here = with_pair(records, (source, target))
        for shots in sorted({r.arguments["shots"] for r in here}):
            for kind, name in PRIORS.items():
                row = [str(shots), name]
                for measure in ("map accuracy", "map nll", "sampled nll", "linearised nll", "linearised ece"):
                    ours, base = (by_seed(here, shots, k, measure) for k in (kind, "mean"))
                    difference = "" if kind == "mean" else f" ({shown(*paired(ours, base), digits=3, sign=True)})"
                    row.append(mean(ours) + difference)
                rows.append(row)
        title = f"{source} → {target}: mean (paired difference to the isotropic prior at the same mean ± 95 %)"
        columns = ["per class", "prior", "MAP acc", "MAP NLL", "sampled NLL", "linear. NLL", "linear. ECE"]
        made.append(Table(title, columns, rows))
    return made


def _published_tables(records: Sequence[Record]) -> list[Table]:
    here = with_protocol(records, "paper")
    if not here:
        return []
    rows = []
    for shots in sorted({r.arguments["shots"] for r in here}):
        for kind, name in PRIORS.items():
            samples = [by_seed(here, shots, kind, f"{m} accuracy") for m in ("sampled", "linearised", "map")]
            sampled, *others = [f"{100 * statistics.mean(s.values()):.1f}" if s else "–" for s in samples]
            theirs = published.curve("figure 2b", kind).get(shots)
            rows.append([str(shots), name, sampled, "" if theirs is None else f"{theirs:.1f}", *others])
    columns = ["per class", "prior", "sampled, τ = 1e-5", "paper", "linearised, τ = 1", "MAP"]
    return [Table("The paper's protocol (γ = 1e-5, τ = 1e-5), accuracy in %", columns, rows)]


def _all_data_tables(records: Sequence[Record]) -> list[Table]:
    here = with_protocol(records, "all data")
    if not here:
        return []
    rows = []
    for kind in ONE_STRENGTH:
        values = [r.values for r in here if r.arguments["prior"] == kind]
        accuracy = {m: [100 * v[f"{m} accuracy"] for v in values] for m in ("map", "sampled", "linearised")}
        row = [PRIORS[kind], f"{statistics.mean(accuracy['map']):.1f}"]
        for method in ("sampled", "linearised"):
            lost, half = interval([m - a for m, a in zip(accuracy["map"], accuracy[method], strict=True)])
            row.append(f"{statistics.mean(accuracy[method]):.1f} ({lost:.1f} ± {half:.1f} lost)")
        rows.append(row)
    columns = ["prior", "MAP", "sampled, τ = 1", "linearised, τ = 1"]
    return [Table("All of NotMNIST's training images (10,656 and 1,184 held out), accuracy in %", columns, rows)]


def draw(records: Sequence[Record]) -> Figure:
    pairs = pairs_of(records)
    figure = Figure(figsize=(3.6 * max(1, len(pairs)), 6), layout="constrained")
    axes = figure.subplots(2, max(1, len(pairs)), squeeze=False, sharex=True)
    for column, (source, target) in enumerate(pairs):
        here = with_pair(records, (source, target))
        shots = sorted({r.arguments["shots"] for r in here})
        for row, measure in enumerate(("map accuracy", "linearised nll")):
            axis = axes[row][column]
            for kind, name in PRIORS.items():
                spreads = [interval(list(by_seed(here, s, kind, measure).values())) for s in shots]
                axis.plot(shots, [m for m, _ in spreads], marker="o", markersize=4, color=COLOURS[kind], label=name)
                low, high = [m - h for m, h in spreads], [m + h for m, h in spreads]
                axis.fill_between(shots, low, high, color=COLOURS[kind], alpha=0.15, linewidth=0)
            axis.set(xscale="log", ylabel=("MAP accuracy", "NLL, linearised")[row] if column == 0 else "")
            axis.set_xticks(shots, [str(n) for n in shots])
            axis.minorticks_off()
            axis.grid(color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
        axes[0][column].set_title(f"{source} → {target}")
        axes[1][column].set_xlabel("images per class")
    axes[0][0].legend(frameon=False, fontsize=8)
    return figure
