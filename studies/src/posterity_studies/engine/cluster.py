"""The same cells spread over a cluster by Dask: results come back to one file here. It needs the extra `cluster`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from posterity_studies.engine.declaration import Cell, Record, Study, record
from posterity_studies.errors import NoEngine

SECONDS = 20
"""How long a scheduler may take to answer."""


def compute_on_cluster(study: Study, cells: Sequence[Cell], address: str) -> Generator[Record, None, None]:
    """Yield each cell's record as it is finished, in whatever order. Close the iterator to take the rest back.

    Workers need posterity and, where a study reads data, the data root; nothing is written there. A cell is lost only with
    its worker, and Dask gives it to another.
    """
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise NoEngine("a cluster is reached by Dask: pip install 'posterity-studies[cluster]'.") from error
    try:
        client: Any = Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise NoEngine(f"no Dask scheduler answers at {address}: {error}") from error
    try:
        # A key of its own for every cell: Dask would take two calls of equal arguments for one.
        futures = [
            client.submit(record, study.cell, cell, key=f"{cell.study}-{cell.key}", pure=False) for cell in cells
        ]
        try:
            for future in as_completed(futures, loop=client.loop):
                yield future.result()
        finally:
            client.cancel(futures)
    finally:
        client.close()
