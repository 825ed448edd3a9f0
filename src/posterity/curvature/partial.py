"""The sums of an unfinished estimate in a file, so that a kill loses a minute of a long pass and not all of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posterity.data.batches import Workers
from posterity.errors import BadCheckpoint, MissingFolder
from posterity.files import check_settings, read_state, resuming, write_state

SECONDS = 60.0
"""Of work that a kill loses at most, beside the batch it falls into; more where writing takes long."""
RATIO = 20
"""Times as long as the last writing took, until the next one: on a busy machine or a slow disk, work is not to be all writing."""
WHAT = "this estimate"


class ResumeFile:
    """One worker's file: read at the beginning, written on the way, gone at the end.

    It names what it belongs to (estimator, likelihood, weights, batch size, number of workers) and the examples that are in it.
    Anything else is refused.
    """

    def __init__(self, path: str | Path, workers: Workers, settings: Mapping[str, Any]) -> None:
        name = Path(path)
        if workers.size > 1:
            name = name.with_name(f"{name.name}.{workers.rank + 1}-of-{workers.size}")
        self.path, self.settings = name, dict(settings)
        self.written, self.pause = time.monotonic(), SECONDS
        if not name.parent.is_dir():
            raise MissingFolder(f"the folder {name.parent} of the checkpoint does not exist: make it first.")
        self.found = self._read()
        self._agree(workers)

    def keep(self, state: Callable[[], Mapping[str, Any]]) -> None:
        """Write what there is, unless that was done a short while ago."""
        begin = time.monotonic()
        if begin - self.written < self.pause:
            return
        write_state(self.path, {"settings": self.settings, **state()})
        self.written = time.monotonic()
        self.pause = max(SECONDS, RATIO * (self.written - begin))

    def check_same(self, hashes: Tensor | None, number: int) -> None:
        """Refuse a skipped batch that is not one of those in the file."""
        assert self.found is not None
        kept = self.found["hashes"][number]
        same = hashes is kept if hashes is None or kept is None else torch.equal(kept, hashes)
        if not same:
            raise BadCheckpoint(
                f"{self.path} holds sums of other data: batch {number} is not the one that is in it. Remove it to start again, "
                "or give the same data in the same order."
            )

    def check_reached(self, batches: int) -> None:
        """Refuse data that ends before all batches of the file have come again."""
        if self.found is not None and batches < self.found["batches"]:
            raise BadCheckpoint(
                f"{self.path} holds sums of {self.found['batches']} batches and the data has {batches}: it is other data. "
                "Remove the file to start again."
            )

    def done(self) -> None:
        """The result is there: nothing is left to go on with."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        with resuming(self.path, WHAT):
            state: dict[str, Any] = read_state(self.path)
            check_settings(self.path, WHAT, state["settings"], self.settings)
        return state

    def _agree(self, workers: Workers) -> None:
        """Workers meet between two passes over the data: they go on within one pass, or all begin again."""
        if workers.size == 1:
            return
        own = -1 if self.found is None else int(self.found["phase"])
        phases = {int(phase) for phase in workers.gather(torch.tensor(own))}
        # A worker that had not written yet begins the first pass again, beside others that go on in it.
        if len({max(0, phase) for phase in phases}) > 1:
            self.found = None
