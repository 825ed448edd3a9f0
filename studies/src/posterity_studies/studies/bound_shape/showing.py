"""The table of optima, and both surfaces as maps."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.bound_shape.reading import axes, distance, mean_surface, optimum, true_at

NAMES = {"approximate": "approximate", "true": "true"}


def tables(records: Sequence[Record]) -> list[Table]:
    rows = []
    for r in records:
        ours, true = optimum(r, "approximate"), optimum(r, "true")
        point = [f"{o.alpha:g}, {o.beta:g}" for o in (ours, true)]
        prices = [f"{ours.bound:.4f}", f"{true.bound:.4f}", f"{true_at(r, ours):.4f}"]
        rows.append(
            [str(r.arguments["seed"]), *point, f"{distance(ours, true):.2f}", *prices, f"{r.values['beta']:.2f}"]
        )
    columns = [
        "seed",
        "best α, β",
        "truly best",
        "decades apart",
        "approximate bound",
        "true best",
        "true at ours",
        "one-number β",
    ]
    return [Table("Where each Catoni value is least, and what choosing by the approximation costs", columns, rows)]


def draw(records: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    alphas, betas = axes(records)
    spots = {which: mean_surface(records, which) for which in NAMES}
    low, high = min(min(map(min, s)) for s in spots.values()), max(max(map(max, s)) for s in spots.values())
    for axis, (which, name) in zip(panels, NAMES.items(), strict=True):
        image = axis.imshow(spots[which], origin="lower", aspect="auto", vmin=low, vmax=high, cmap="viridis_r")
        axis.set_xticks(range(len(betas)), [f"{b:g}" for b in betas])
        axis.set_yticks(range(len(alphas)), [f"{a:g}" for a in alphas])
        axis.set(title=f"{name} (crosses: least, by seed)", xlabel="β")
        for r in records:
            best = optimum(r, which)
            axis.plot(
                betas.index(best.beta), alphas.index(best.alpha), "x", color="#d55e00", markersize=9, markeredgewidth=2
            )
    panels[0].set_ylabel("α")
    figure.colorbar(image, ax=panels, label="Catoni value")
    return figure
