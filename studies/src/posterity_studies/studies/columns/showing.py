"""A table and a figure by way."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.columns.reading import WAYS


def tables(records: Sequence[Record]) -> list[Table]:
    return WAYS.tables(records, "Means over the tasks of a stream, and over seeds with 95 % intervals")


def draw(records: Sequence[Record]) -> Figure:
    return WAYS.draw(records)
