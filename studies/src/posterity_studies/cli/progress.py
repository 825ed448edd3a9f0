"""Progress over cells: a bar with an estimate on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from posterity_studies.engine.runner import Watch

SHARE = 10
"""In a log, a line for every tenth of the cells."""


@contextmanager
def watching(console: Console, name: str, quiet: bool) -> Iterator[Watch]:
    if quiet:
        yield lambda kept, total: None
    elif console.is_terminal:
        with Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
        ) as bar:
            yield _Bar(bar, name)
    else:
        yield _Log(console, name)


class _Bar:
    def __init__(self, bar: Progress, name: str) -> None:
        self.bar = bar
        self.task = bar.add_task(name, start=False, total=None)

    def __call__(self, kept: int, total: int) -> None:
        self.bar.update(self.task, completed=kept, total=total)
        # The clock starts with the first report, so cells of an earlier run do not flatter the estimate.
        self.bar.start_task(self.task)


class _Log:
    def __init__(self, console: Console, name: str) -> None:
        self.console, self.name = console, name
        self.before: int | None = None
        self.reported = 0
        self.began = time.monotonic()

    def __call__(self, kept: int, total: int) -> None:
        share = SHARE * kept // total if total else SHARE
        if self.before is None:
            self.before = kept
            self.reported = share
            self.console.print(f"{self.name}: {kept} of {total} cells kept from before")
        elif share > self.reported or kept == total:
            self.reported = share
            each = (time.monotonic() - self.began) / (kept - self.before)
            left = f", about {each * (total - kept):.0f} s left" if kept < total else ""
            self.console.print(f"{self.name}: {kept} of {total} cells{left}")
