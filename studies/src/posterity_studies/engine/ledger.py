"""The results file: one JSON line per finished cell, safe against a kill at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from posterity_studies.engine.declaration import Cell, Record
from posterity_studies.errors import DamagedResults, NotWritten, ResultsBusy


class Ledger:
    """Results of one study. Reading is free to all; appending needs `writing()`, which one run holds at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = _read(path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the file against other runs, with its end clean and its contents read afresh.

        The operating system drops the lock with the process, so a killed run leaves none behind.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.with_name(f".{self.path.stem}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ResultsBusy(
                f"{self.path} is being written by another run: wait for it, stop it, or choose another folder "
                "with --results."
            ) from None
        try:
            _drop_torn_end(self.path)
            self.records = _read(self.path)
            yield
        finally:
            lock.release()

    def append(self, record: Record) -> None:
        """Put one record on disk before returning: one write, so a kill leaves a whole line or a torn end."""
        line = json.dumps(asdict(record), separators=(",", ":"), allow_nan=False).encode() + b"\n"
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            with open(self.path, "ab", buffering=0) as file:
                written = file.write(line)
                if written != len(line):
                    raise OSError(f"{written} of {len(line)} bytes were written")
                os.fsync(file.fileno())
        except OSError as error:
            # Half a line would be merged with the next: the file goes back to what it was.
            if self.path.exists():
                os.truncate(self.path, before)
            raise NotWritten(f"{self.path} cannot take another result ({error}): make room, and run again.") from error
        self.records[record.key] = record

    def of(self, cells: Iterable[Cell]) -> list[Record]:
        """The records of these cells, in their order; those not computed yet are left out."""
        return [self.records[cell.key] for cell in cells if cell.key in self.records]

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        return [cell for cell in cells if cell.key not in self.records]


def _read(path: Path) -> dict[str, Record]:
    whole = path.read_bytes() if path.exists() else b""
    records: dict[str, Record] = {}
    # What follows the last newline is a line that a kill tore: not a result, and not damage either.
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            record = _record(json.loads(line))
        except (TypeError, ValueError, RecursionError) as error:
            raise DamagedResults(
                f"{path}, line {number} is not a result ({error}): restore the file, or delete that line and its "
                "cell will be computed again."
            ) from None
        records.setdefault(record.key, record)
    return records


def _record(raw: Any) -> Record:
    """A record of the right kinds, with every field and no other."""
    record = Record(**raw)
    if not isinstance(record.key, str) or not isinstance(record.arguments, dict) or not isinstance(record.values, dict):
        raise TypeError("its key is text, its arguments and values are objects")
    return record


def _drop_torn_end(path: Path) -> None:
    if not path.exists():
        return
    whole = path.read_bytes()
    if (keep := whole.rfind(b"\n") + 1) < len(whole):
        with open(path, "r+b") as file:
            file.truncate(keep)
            os.fsync(file.fileno())
