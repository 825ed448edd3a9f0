"""Regression on UCI sets with their standard splits: what weight uncertainty adds to a small network."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.datasets import UCI
from posterity_studies.declaration import Outcome, Preset, Record, Study, Table, Verdict, grid
from posterity_studies.intervals import interval, paired, shown
from posterity_studies.regression.cells import cell

METHODS = {
    "map": "mode and noise",
    "linearised": "Laplace, linearised",
    "sampled": "Laplace, sampled",
    "dropout": "MC dropout",
    "ensemble": "ensemble of 5",
}


def _by_split(records: Sequence[Record], data: str, key: str) -> dict[int, float]:
    return {r.arguments["split"]: r.values[key] for r in records if r.arguments["data"] == data}


def _sets(records: Sequence[Record]) -> list[str]:
    return sorted({r.arguments["data"] for r in records})


def tables(records: Sequence[Record]) -> list[Table]:
    rows = []
    for data in _sets(records):
        for method, name in METHODS.items():
            nll, rmse = (_by_split(records, data, f"{method} {measure}") for measure in ("nll", "rmse"))
            base = _by_split(records, data, "map nll")
            difference = "" if method == "map" else shown(*paired(nll, base), digits=3, sign=True)
            cells = [shown(*interval(list(v.values())), digits=d) for v, d in ((nll, 3), (rmse, 2))]
            rows.append([data, name, cells[0], difference, cells[1]])
    columns = ["data", "predictive", "test NLL", "paired to the mode", "RMSE"]
    return [Table("Test NLL in mean nats and RMSE in the target's units, mean ± 95 % over splits", columns, rows)]


def draw(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    sets = _sets(records)
    axes = figure.subplots(1, len(sets), squeeze=False)[0]
    for axis, data in zip(axes, sets, strict=True):
        spreads = [interval(list(_by_split(records, data, f"{m} nll").values())) for m in METHODS]
        heights = range(len(METHODS))
        axis.errorbar(
            [m for m, _ in spreads], heights, xerr=[h for _, h in spreads], fmt="o", color="#0072b2", capsize=3
        )
        axis.set_yticks(heights, list(METHODS.values()) if axis is axes[0] else [""] * len(METHODS))
        axis.invert_yaxis()
        axis.set(title=data, xlabel="test NLL")
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where the interval of the difference to the mode lies below zero."""
    said, better = [], 0
    for data in _sets(records):
        mean, half = paired(_by_split(records, data, "linearised nll"), _by_split(records, data, "map nll"))
        ensemble, _ = paired(_by_split(records, data, "linearised nll"), _by_split(records, data, "ensemble nll"))
        better += mean + half < 0
        said.append(f"{data} {shown(mean, half, 3, True)} to the mode, {ensemble:+.3f} to an ensemble")
    why = (
        f"Test NLL of the linearised Laplace posterior (less is better): {'; '.join(said)}. Better than the mode with "
        f"well-chosen noise on {better} of {len(said)} sets."
    )
    return Verdict(Outcome.ours if better else Outcome.unsupported, why)


REGRESSION = Study(
    id="regression",
    claim="A Laplace posterior gives a small regression network honest error bars, from one training.",
    data="UCI concrete, energy and yacht, standard splits; one hidden layer of 50 units",
    grid={
        Preset.smoke: grid(data=["yacht"], split=[0], epochs=[3]),
        Preset.cpu: grid(split=range(20), data=list(UCI), epochs=[40]),
        Preset.paper: grid(split=range(20), data=list(UCI), epochs=[400]),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "A tenth of the training data is held out. Each method tries three prior precisions (by validation error) and "
        "five noise precisions (by validation NLL); an ensemble then trains four networks more, dropout (5 %) three.",
        "All twenty standard splits, 40 epochs of Adam; the paper preset has 400. The curvature is KFAC "
        "with exact labels.",
    ),
)
