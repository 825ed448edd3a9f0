"""Bring a study's results up to date: compute what is missing, keep each cell the moment it is done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from posterity_studies.engine.cluster import compute_on_cluster
from posterity_studies.engine.declaration import Preset, Record, Study, record
from posterity_studies.engine.ledger import Ledger
from posterity_studies.engine.processes import compute_in_processes
from posterity_studies.errors import NoResults

Watch = Callable[[int, int], None]
"""Called at the start and after every cell, with how many cells are kept and how many there are."""


def ledger(study: Study, folder: Path) -> Ledger:
    return Ledger(folder / f"{study.id}.jsonl")


def run(
    study: Study,
    preset: Preset,
    folder: Path,
    workers: int = 1,
    watch: Watch = lambda kept, total: None,
    cluster: str | None = None,
) -> list[Record]:
    """All records of a preset, in the order of its grid. Cells found in the results file are not computed again.

    `cluster` is the address of a Dask scheduler whose workers compute instead of this machine's.

    A kill at any moment loses at most the cells being computed. The outcome depends neither on the number of
    workers nor on the order in which they finish.
    """
    book = ledger(study, folder)
    cells = study.cells(preset)
    with book.writing():
        missing = book.missing(cells)
        kept = len(cells) - len(missing)
        watch(kept, len(cells))
        if cluster is not None:
            source = compute_on_cluster(study, missing, cluster)
        elif workers > 1 and len(missing) > 1:
            source = compute_in_processes(study, missing, min(workers, len(missing)))
        else:
            source = (record(study.cell, cell) for cell in missing)
        with closing(source) as finished:
            for one in finished:
                book.append(one)
                kept += 1
                watch(kept, len(cells))
    return book.of(cells)


def latest(study: Study, folder: Path) -> tuple[Preset, list[Record]]:
    """The largest preset that is complete, or else the one with the most cells, and its records."""
    book = ledger(study, folder)
    found = {preset: book.of(study.cells(preset)) for preset in reversed(Preset)}
    for preset, records in found.items():
        if len(records) == len(study.grid[preset]):
            return preset, records
    preset = max(found, key=lambda name: len(found[name]))
    if not found[preset]:
        raise NoResults(f"{book.path} holds no results of this study: `posterity study run {study.id}` makes them.")
    return preset, found[preset]


def save_figure(study: Study, records: list[Record], folder: Path) -> Path:
    """Draw the study's figure beside its results. The same results give the same file."""
    path = folder / f"{study.id}.png"
    study.draw(records).savefig(path, dpi=160, metadata={"Software": None})
    return path
