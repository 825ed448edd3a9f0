"""A table and a figure by pair of sets."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.variational.reading import BOTH


def tables(records: Sequence[Record]) -> list[Table]:
    return BOTH.tables(records, "Test NLL in mean nats over seeds, with 95 % intervals")


def draw(records: Sequence[Record]) -> Figure:
    return BOTH.draw(records)
