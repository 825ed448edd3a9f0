"""Cells computed in this process or in several, with the same results."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch

from posterity import __version__
from posterity_studies.engine.declaration import Arguments, Cell, Record, Study, Values
from posterity_studies.errors import WorkerDied

CellFunction = Callable[[Arguments, torch.Generator], Values]


def compute(study: Study, cells: Sequence[Cell], workers: int) -> Generator[Record, None, None]:
    """Yield each cell's record as it is finished. Stop early by closing the iterator."""
    if workers == 1 or len(cells) < 2:
        with one_thread():
            for cell in cells:
                yield record(study.cell, cell)
    else:
        yield from _compute_in_processes(study, cells, min(workers, len(cells)))


def _compute_in_processes(study: Study, cells: Sequence[Cell], workers: int) -> Generator[Record, None, None]:
    """One pipe a worker: whoever answers gets the next cell.

    Processes are spawned, not forked: a fork would inherit torch's threads and the lock on the results. When
    this process is killed the pipes close, and no worker outlives the cell it was busy with.
    """
    context = multiprocessing.get_context("spawn")
    queue = iter(cells)
    team: dict[Connection, SpawnProcess] = {}
    busy: dict[Connection, Cell] = {}
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(study.cell, theirs), daemon=True)
            process.start()
            theirs.close()
            team[ours] = process
            busy[ours] = next(queue)
            ours.send(busy[ours])
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                cell = busy.pop(ready)
                answer = _answer(ready, team[ready], cell)
                if (following := next(queue, None)) is not None:
                    busy[ready] = following
                    ready.send(following)
                yield answer
    finally:
        for connection, process in team.items():
            connection.close()
            process.terminate()
            process.join()


def _answer(connection: Connection, process: SpawnProcess, cell: Cell) -> Record:
    try:
        answer: Record | Exception = connection.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        raise WorkerDied(
            f"a worker ended with exit code {process.exitcode} on cell {dict(cell.arguments)}: if it ran out of "
            "memory, use fewer --workers. Finished cells are kept."
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _serve(function: CellFunction, connection: Connection) -> None:
    """A worker's life: until the pipe closes, take a cell and send back its record or what went wrong."""
    # Ctrl-C reaches the whole group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with one_thread():
        while True:
            try:
                cell = connection.recv()
            except (EOFError, ConnectionResetError):
                return
            try:
                answer: Record | Exception = record(function, cell)
            except Exception as error:
                answer = error
            try:
                connection.send(answer)
            except (BrokenPipeError, ConnectionResetError):
                return


def record(function: CellFunction, cell: Cell) -> Record:
    """Compute a cell and time it."""
    start = time.perf_counter()
    try:
        values = function(cell.arguments, cell.generator())
    except Exception as error:
        error.add_note(f"in study {cell.study}, cell {dict(cell.arguments)}")
        raise
    seconds = round(time.perf_counter() - start, 3)
    versions = {"posterity": __version__, "torch": version("torch")}
    return Record(cell.study, cell.key, cell.arguments, values, seconds, versions, cell.source)


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums associate differently over threads; with one a cell's digits depend on its arguments alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
