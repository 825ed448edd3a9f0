"""Cells computed in several processes, with the same results as in one."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from posterity_studies.engine.declaration import Cell, CellFunction, Record, Study, record
from posterity_studies.errors import WorkerDied


def compute_in_processes(study: Study, cells: Sequence[Cell], workers: int) -> Generator[Record, None, None]:
    """Yield each cell's record as it is finished; close the iterator to stop early. One pipe a worker: whoever answers goes on.

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
