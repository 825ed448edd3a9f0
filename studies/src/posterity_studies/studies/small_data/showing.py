"""Our curves beside the paper's, the factor of fewer images, the grid of γ and τ, other units: tables and figure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared import published
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.shared.priors import COLOURS, PRIORS
from posterity_studies.studies.small_data.cells import VARIANTS
from posterity_studies.studies.small_data.reading import (
    EXACT,
    LEVELS,
    OURS,
    PAIR,
    SETTINGS,
    WARM_PAIR,
    curve,
    images_needed,
    paper_curve,
    samples,
    standard,
    times_fewer,
)

PANELS = {
    OURS: "factors shrunk by 30 %,\nτ = 0.1",
    WARM_PAIR: "one pair, jitter 10 %, τ = 0.01\n(dashed: the paper, τ = 1e-5)",
    EXACT: "exact sum,\nγ = τ = 1e-5",
    "map": "the mode,\nno draws",
}


def tables(records: Sequence[Record]) -> list[Table]:
    return [_curves(records), _factors(records), *_grid(records), *_pairs(records), *_variants(records)]


def _curves(records: Sequence[Record]) -> Table:
    wanted = [PAIR, WARM_PAIR, OURS, EXACT, "map"]
    rows = []
    sizes = sorted({r.arguments["shots"] for r in standard(records)})
    for n in sizes:
        for kind, name in PRIORS.items():
            ours = [curve(records, kind, key).get(n, (math.nan, math.nan)) for key in wanted]
            theirs = paper_curve(kind).get(n)
            first, *rest = (shown(*pair) for pair in ours)
            rows.append([str(n), name, first, "–" if theirs is None else f"{theirs:.1f}", *rest])
    columns = [
        "per class", "prior", "one pair, jitter 10 %, τ = 1e-5", "paper, τ = 1e-5", "one pair, τ = 0.01",
        "shrunk 30 %, τ = 0.1", "exact sum, τ = 1e-5", "MAP",
    ]  # fmt: skip
    return Table("Accuracy in %, γ = 1e-5, mean ± 95 % over seeds", columns, rows)


def _factors(records: Sequence[Record]) -> Table:
    rows = []
    published_curves = {kind: paper_curve(kind) for kind in PRIORS}
    curves = [("the paper", published_curves)]
    for key, name in SETTINGS.items():
        found = {k: {n: m for n, (m, _) in curve(records, k, key).items()} for k in PRIORS}
        if all(found.values()):
            curves.append((name, found))
    for name, found in curves:
        row = [name]
        for level in LEVELS:
            images = _number(images_needed(found["learned"], level))
            times = " / ".join(_times(times_fewer(found["learned"], found[k], level)) for k in ("mean", "zero"))
            row.append(f"{images} ({times})")
        rows.append(row)
    columns = ["", *(f"{level:g} %" for level in LEVELS)]
    return Table(
        "Images per class that the learned prior needs (times fewer than isotropic around the source weights / at zero)",
        columns,
        rows,
    )


def _grid(records: Sequence[Record]) -> list[Table]:
    """Figure 7 where we have it: learned, isotropic around the source weights, at zero."""
    rows = []
    here = standard(records)

    def means(key: str) -> str:
        ours = [samples(here, key, prior=k, shots=10) for k in PRIORS]
        return " ".join(f"{interval(s)[0]:.0f}" if s else "–" for s in ours)

    for gamma in sorted({g for r in here for g in r.arguments["gammas"]}, reverse=True):
        row = [f"{gamma:g}", means(f"shrunk 0.3 {gamma:g} 0.1")]
        for tau in ("1e-05", "1e-07", "1e-09"):
            paper = [published.curve("figure 7", f"{gamma:g} {tau} {k}").get(10) for k in PRIORS]
            row.append(means(f"free {gamma:g} {tau}"))
            row.append(" ".join("–" if p is None else f"{p:.0f}" for p in paper))
        rows.append(row)
    columns = ["γ", "shrunk 30 %, τ = 0.1", *(c for t in ("1e-5", "1e-7", "1e-9") for c in (f"τ = {t}", "paper"))]
    title = (
        "Ten per class over γ and τ: accuracy in % of learned, isotropic around the source weights, isotropic at zero"
    )
    return [Table(title, columns, rows)]


def _pairs(records: Sequence[Record]) -> list[Table]:
    """The sum kept, and the sum joined to one pair with little and with much jitter, beside the paper's, who joined it."""
    treatments = {"free": "exact sum", "joined 1e-06": "one pair, jitter 1e-6", "joined 0.1": "one pair, jitter 10 %"}
    rows = []
    for treatment, title in treatments.items():
        for kind, name in PRIORS.items():
            found = [
                samples(standard(records), f"{treatment} 1e-05 {t}", prior=kind, shots=10)
                for t in ("1e-05", "1e-07", "1e-09")
            ]
            if any(found):
                rows.append([title, name, *(shown(*interval(s)) if s else "–" for s in found)])
    if len({row[0] for row in rows}) < 2:
        return []
    for kind, name in PRIORS.items():
        theirs = [published.curve("figure 7", f"1e-05 {t} {kind}").get(10) for t in ("1e-05", "1e-07", "1e-09")]
        rows.append(["the paper", name, *("–" if p is None else f"{p:.1f}" for p in theirs)])
    columns = ["how the sum is kept", "prior", "τ = 1e-5", "τ = 1e-7", "τ = 1e-9"]
    return [Table("Ten per class, γ = 1e-5: what joining the sum to one pair does, accuracy in %", columns, rows)]


def _variants(records: Sequence[Record]) -> list[Table]:
    keys = [EXACT, "free 1e-05 1e-06", "pinned 1e-05 0.001", OURS, "map"]
    rows = []
    for name, (weight, pull) in ({"as it should be": (1.0, 1.0)} | VARIANTS).items():
        found = [samples(records, key, prior="learned", shots=10, weight=weight, pull=pull) for key in keys]
        if found[0]:
            rows.append([name, *(shown(*interval(s)) if s else "–" for s in found)])
    if len(rows) < 2:
        return []
    columns = ["the learned prior", "τ = 1e-5", "τ = 1e-6", "dead units apart, 1e-3", "shrunk 30 %, 0.1", "MAP"]
    return [
        Table(
            f"Ten images per class in other units, accuracy in % (the paper: {paper_curve('learned')[10]:.1f} at τ = 1e-5)",
            columns,
            rows,
        )
    ]


def _number(n: float) -> str:
    return "not reached" if math.isinf(n) else f"{n:.0f}"


def _times(f: float) -> str:
    if math.isnan(f):
        return "–"
    return "∞" if math.isinf(f) else f"{f:.1f}×"


def draw(records: Sequence[Record]) -> Figure:
    panels = {key: title for key, title in PANELS.items() if curve(records, "learned", key)}
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (key, title) in zip(axes, panels.items(), strict=True):
        for kind, name in PRIORS.items():
            found = curve(records, kind, key)
            sizes = list(found)
            axis.plot(sizes, [m for m, _ in found.values()], marker="o", markersize=3, color=COLOURS[kind], label=name)
            low, high = [max(0, m - h) for m, h in found.values()], [min(100, m + h) for m, h in found.values()]
            axis.fill_between(sizes, low, high, color=COLOURS[kind], alpha=0.15, linewidth=0)
            if key == WARM_PAIR:
                theirs = {n: a for n, a in paper_curve(kind).items() if n <= 1000}
                axis.plot(list(theirs), list(theirs.values()), color=COLOURS[kind], linewidth=0.9, linestyle="--")
        axis.set(xscale="log", xlabel="images per class", ylim=(0, 100))
        axis.set_title(title, fontsize=10)
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("accuracy in %")
    axes[-1].legend(frameon=False, fontsize=8, loc="lower right")
    return figure
