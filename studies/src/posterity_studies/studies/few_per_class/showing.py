"""A table and a figure by examples a class."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.few_per_class.reading import BOTH


def tables(records: Sequence[Record]) -> list[Table]:
    return BOTH.tables(records, "Means over tasks and draws of their examples, with 95 % intervals")


def draw(records: Sequence[Record]) -> Figure:
    return BOTH.draw(records)
