"""A table and a figure by kind of task, and every set on its own."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.untouched.reading import WAYS, kind


def tables(records: Sequence[Record]) -> list[Table]:
    rows = []
    for name, group in dict.fromkeys((r.arguments["set"], kind(r)) for r in records):
        some = [r for r in records if (r.arguments["set"], kind(r)) == (name, group)]
        scores = [f"{mean(r.values[way]['nll'] for r in some):.3f}" for way in WAYS.ways]
        rows.append([name, group, str(some[0].values["examples"]), *scores])
    return [
        *WAYS.tables(
            records, "Test NLL (of standardised targets for a regression), means over sets with 95 % intervals"
        ),
        Table("Test NLL by set, means over draws", ["set", "task", "examples", *WAYS.ways.values()], rows),
    ]


def draw(records: Sequence[Record]) -> Figure:
    return WAYS.draw(records)
