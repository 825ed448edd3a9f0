"""Accuracy by temperature beside the paper's, and what each predictive loses to the mode."""

from __future__ import annotations

from collections.abc import Sequence

from posterity.studies.cold_posterior.reading import UNITS, gammas, lost, published, samples, temperatures
from posterity.studies.declaration import Record, Table
from posterity.studies.intervals import interval, shown
from posterity.studies.priors import PRIORS


def tables(records: Sequence[Record]) -> list[Table]:
    return [*(_temperatures(records, gamma) for gamma in gammas(records)), _lost(records)]


def _temperatures(records: Sequence[Record], gamma: float) -> Table:
    rows = []
    for tau in temperatures(records):
        row = [f"{tau:g}"]
        for units in UNITS:
            for kind in PRIORS:
                found = list(samples(records, kind, f"{units} {gamma:g} {tau:g}").values())
                row.append(shown(*interval(found)) if found else "–")
        theirs = [published(gamma, kind).get(tau) for kind in PRIORS]
        rows.append([*row, " / ".join("–" if p is None else f"{p:.1f}" for p in theirs)])
    short = {"learned": "learned", "mean": "at the mean", "zero": "at zero"}
    columns = ["τ", *short.values(), *(f"{name} *" for name in short.values()), "paper: learned / mean / zero"]
    return Table(f"γ = {gamma:g}: accuracy in %, mean ± 95 % over seeds (*: dead units left alone)", columns, rows)


def _lost(records: Sequence[Record]) -> Table:
    rows = []
    for kind, name in PRIORS.items():
        for gamma in gammas(records):
            keys = [f"free {gamma:g} 0.1", f"pinned {gamma:g} 0.1", f"pinned {gamma:g} 0.01", f"{gamma:g} linearised"]
            found = [list(lost(records, kind, key).values()) for key in keys]
            if not found[0]:
                continue
            theirs = published(gamma, kind)
            paper = f"{theirs[1e-9] - theirs[0.1]:.1f}" if {1e-9, 0.1} <= theirs.keys() else "–"
            mode = shown(*interval(list(samples(records, kind, "map").values())))
            rows.append([name, f"{gamma:g}", mode, paper, *(shown(*interval(s)) if s else "–" for s in found)])
    columns = [
        "prior",
        "γ",
        "MAP",
        "paper, τ = 0.1",
        "sampled 0.1",
        "sampled* 0.1",
        "sampled* 0.01",
        "linearised, τ = 1",
    ]
    return Table("Points of accuracy lost to the mode (*: dead units left alone; paper: to τ = 1e-9)", columns, rows)
