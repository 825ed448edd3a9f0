"""A table and a figure by data set."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.memorised.reading import WIDTHS


def tables(records: Sequence[Record]) -> list[Table]:
    return WIDTHS.tables(records, "Test NLL in mean nats over seeds, for all layers and for the last one alone")


def draw(records: Sequence[Record]) -> Figure:
    return WIDTHS.draw(records)
