"""What draws lose to the mode at τ = 0.1, and accuracy by temperature beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.cold_posterior.reading import (
    amounts,
    gammas,
    lost,
    named,
    of,
    published,
    samples,
    temperatures,
    ways,
)
from posterity_studies.declaration import Record, Table
from posterity_studies.intervals import interval, shown
from posterity_studies.priors import PRIORS
from posterity_studies.ways import WAYS

SHORT = {"learned": "learned", "mean": "at the mean", "zero": "at zero"}


def tables(records: Sequence[Record]) -> list[Table]:
    """The claim first, then the curves."""
    made = [_lost(records, shots) for shots in amounts(records)]
    for shots in amounts(records):
        here = of(records, shots)
        made += [_temperatures(here, shots, gamma) for gamma in gammas(here) if gamma == 1e-5 or len(gammas(here)) == 1]
    return [*made, *_over_gamma(records)]


def _lost(records: Sequence[Record], shots: int) -> Table:
    here = of(records, shots)
    rows = []
    for way in ways(here):
        for gamma in gammas(here):
            found = [lost(here, kind, f"{way} {gamma:g} 0.1") for kind in PRIORS]
            if any(found):
                rows.append([WAYS[way], f"{gamma:g}", *(shown(*interval(s)) if s else "–" for s in found)])
    linear = [[v for g in gammas(here) for v in lost(here, kind, f"{g:g} linearised")] for kind in PRIORS]
    rows.append(["linearised, τ = 1", "all", *(shown(*interval(s)) if s else "–" for s in linear)])
    for gamma in gammas(here) if shots == min(amounts(records)) else []:
        theirs = [published(gamma, kind) for kind in PRIORS]
        cells = [f"{t[1e-9] - t[0.1]:.1f}" if {1e-9, 0.1} <= t.keys() else "–" for t in theirs]
        if set(cells) != {"–"}:
            rows.append(["the paper, to τ = 1e-9", f"{gamma:g}", *cells])
    columns = ["draws", "γ", *SHORT.values()]
    return Table(f"Points of accuracy lost to the mode at τ = 0.1, {named(shots)}", columns, rows)


def _temperatures(here: Sequence[Record], shots: int, gamma: float) -> Table:
    rows = []
    for way in ways(here):
        for tau in temperatures(here):
            found = [list(samples(here, kind, f"{way} {gamma:g} {tau:g}").values()) for kind in PRIORS]
            if any(found):
                rows.append([WAYS[way], f"{tau:g}", *(shown(*interval(s)) if s else "–" for s in found)])
    mode = [list(samples(here, kind, "map").values()) for kind in PRIORS]
    rows.append(["the mode", "", *(shown(*interval(s)) if s else "–" for s in mode)])
    return Table(
        f"Accuracy in %, γ = {gamma:g}, {named(shots)}, mean ± 95 % over seeds", ["draws", "τ", *SHORT.values()], rows
    )


def _over_gamma(records: Sequence[Record]) -> list[Table]:
    """Where γ matters and where it does not: all images, beside the paper's Figure 8."""
    here = of(records, min(amounts(records)))
    if len(gammas(here)) < 2:
        return []
    rows = []
    for tau in temperatures(here):
        for gamma in gammas(here):
            row = [f"{tau:g}", f"{gamma:g}"]
            for way in ways(here):
                found = [list(samples(here, kind, f"{way} {gamma:g} {tau:g}").values()) for kind in PRIORS]
                row.append(" ".join(f"{interval(s)[0]:.0f}" if s else "–" for s in found))
            theirs = [published(gamma, kind).get(tau) for kind in PRIORS]
            rows.append([*row, " ".join("–" if p is None else f"{p:.0f}" for p in theirs)])
    columns = ["τ", "γ", *(WAYS[way] for way in ways(here)), "the paper"]
    return [Table("Accuracy in % of learned, isotropic at the mean, isotropic at zero, all images", columns, rows)]
