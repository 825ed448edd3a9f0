"""Our small-data curves beside the paper's, the factor of fewer images, the grid of γ and τ, and other units."""

from __future__ import annotations

import math
from collections.abc import Sequence

from posterity.studies.declaration import Record, Table
from posterity.studies.intervals import interval, shown
from posterity.studies.priors import PRIORS
from posterity.studies.small_data.cells import VARIANTS
from posterity.studies.small_data.reading import (
    SETTINGS,
    curve,
    factor,
    needed,
    paper_curve,
    plain,
    published,
    samples,
)

LEVELS = (50.0, 80.0, 90.0)


def tables(records: Sequence[Record]) -> list[Table]:
    return [_curves(records), _factors(records), *_grid(records), *_pairs(records), *_variants(records)]


def _curves(records: Sequence[Record]) -> Table:
    wanted = ["free 1e-05 1e-05", "free 1e-05 1e-06", "pinned 1e-05 0.01", "pinned 1e-05 0.001", "map"]
    rows = []
    sizes = sorted({r.arguments["shots"] for r in plain(records)})
    for n in sizes:
        for kind, name in PRIORS.items():
            ours = [curve(records, kind, key).get(n, (math.nan, math.nan)) for key in wanted]
            theirs = paper_curve(kind).get(n)
            first, *rest = (shown(*pair) for pair in ours)
            rows.append([str(n), name, first, "–" if theirs is None else f"{theirs:.1f}", *rest])
    columns = ["per class", "prior", "τ = 1e-5", "paper", "τ = 1e-6", "dead units apart, 1e-2", "…, 1e-3", "MAP"]
    return Table("Accuracy in %, γ = 1e-5, mean ± 95 % over seeds", columns, rows)


def _factors(records: Sequence[Record]) -> Table:
    rows = []
    published_curves = {kind: paper_curve(kind) for kind in PRIORS}
    curves = [("the paper", published_curves)]
    for setting in SETTINGS:
        found = {k: {n: m for n, (m, _) in curve(records, k, setting.key).items()} for k in PRIORS}
        if all(found.values()):
            curves.append((setting.name, found))
    for name, found in curves:
        row = [name]
        for level in LEVELS:
            images = _number(needed(found["learned"], level))
            times = " / ".join(_times(factor(found["learned"], found[k], level)) for k in ("mean", "zero"))
            row.append(f"{images} ({times})")
        rows.append(row)
    columns = ["", *(f"{level:g} %" for level in LEVELS)]
    return Table(
        "Images per class that the learned prior needs (times fewer than isotropic at the mean / at zero)",
        columns,
        rows,
    )


def _grid(records: Sequence[Record]) -> list[Table]:
    """Figure 7 where we have it: learned, isotropic at the mean, at zero."""
    theirs = published()["figure 7"]
    rows = []
    here = plain(records)
    for n in sorted({r.arguments["shots"] for r in here if len(r.arguments["gammas"]) > 1} or {10}):
        for gamma in sorted({g for r in here for g in r.arguments["gammas"]}, reverse=True):
            row = [str(n), f"{gamma:g}"]
            for tau in ("0.001", "1e-05", "1e-07", "1e-09"):
                ours = [samples(here, f"free {gamma:g} {tau}", prior=k, shots=n) for k in PRIORS]
                paper = [theirs.get(f"{gamma:g} {tau} {k}", {}).get(str(n)) for k in PRIORS]
                row.append(" ".join(f"{interval(s)[0]:.0f}" if s else "–" for s in ours))
                row.append(" ".join("–" if p is None else f"{p:.0f}" for p in paper))
            rows.append(row)
    columns = ["per class", "γ", *(c for t in ("1e-3", "1e-5", "1e-7", "1e-9") for c in (f"τ = {t}", "paper"))]
    return [Table("γ × τ: accuracy in % of learned, isotropic at the mean, isotropic at zero", columns, rows)]


def _pairs(records: Sequence[Record]) -> list[Table]:
    """The sum kept beside the sum joined, where the paper joined it."""
    joined = [r for r in records if r.arguments.get("pair")]
    if not joined:
        return []
    rows = []
    for kind, name in PRIORS.items():
        row = [name]
        for tau in ("1e-05", "1e-07", "1e-09"):
            ours = (samples(here, f"free 1e-05 {tau}", prior=kind, shots=10) for here in (plain(records), joined))
            theirs = published()["figure 7"].get(f"1e-05 {tau} {kind}", {}).get("10")
            means = [f"{interval(s)[0]:.0f}" if s else "–" for s in ours]
            row.append(" / ".join([*means, "–" if theirs is None else f"{theirs:.0f}"]))
        rows.append(row)
    columns = ["prior", "τ = 1e-5", "τ = 1e-7", "τ = 1e-9"]
    return [Table("Ten per class, γ = 1e-5: exact sum / single nearest pair / the paper, accuracy in %", columns, rows)]


def _variants(records: Sequence[Record]) -> list[Table]:
    keys = ["free 1e-05 1e-05", "free 1e-05 1e-06", "pinned 1e-05 0.01", "pinned 1e-05 0.001", "map"]
    exact = [r for r in records if not r.arguments.get("pair")]
    rows = []
    for name, (weight, pull) in ({"as it should be": (1.0, 1.0)} | VARIANTS).items():
        found = [samples(exact, key, prior="learned", shots=10, weight=weight, pull=pull) for key in keys]
        if found[0]:
            rows.append([name, *(shown(*interval(s)) if s else "–" for s in found)])
    if len(rows) < 2:
        return []
    columns = ["the learned prior", "τ = 1e-5", "τ = 1e-6", "dead units apart, 1e-2", "…, 1e-3", "MAP"]
    return [Table("Ten images per class in other units, accuracy in % (the paper: 46.1 at τ = 1e-5)", columns, rows)]


def _number(n: float) -> str:
    return "not reached" if math.isinf(n) else f"{n:.0f}"


def _times(f: float) -> str:
    if math.isnan(f):
        return "–"
    return "∞" if math.isinf(f) else f"{f:.1f}×"
