"""Progress for whatever takes longer than two seconds: a bar on a terminal, a line now and then in a log. Open to all parts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
PATIENCE = 2.0
"""Seconds of work before a bar appears: quick calls stay quiet."""
PAUSE = 10.0
"""Seconds between two lines in a log, at least; later ones are further apart."""


def bar() -> Progress:
    """A bar in the house style; it vanishes when done. Where there is no terminal it writes lines instead."""
    # Loaded when a bar is shown: most calls show none.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    kind = Progress if console.is_terminal or console.is_jupyter else lines()
    return kind(*columns, TextColumn("left"), TimeRemainingColumn(), transient=True, console=console)


def lines() -> type[Progress]:
    """A `Progress` that writes plain lines to stderr: the first after ten seconds, each next one twice as late."""
    from rich.progress import Progress, TaskID

    class Lines(Progress):
        def start(self) -> None:
            self._began = self._last = time.monotonic()
            self._pause = PAUSE

        def stop(self) -> None:
            pass

        def update(self, task_id: TaskID, *given: Any, **fields: Any) -> None:
            super().update(task_id, *given, **fields)
            now = time.monotonic()
            if self.disable or now - self._last < self._pause:
                return
            self._last, self._pause = now, 2 * self._pause
            task = next(t for t in self.tasks if t.id == task_id)
            print(line(task.description, task.completed, task.total, now - self._began), file=sys.stderr, flush=True)

    return Lines


def line(description: str, done: float, total: float | None, seconds: float) -> str:
    """One line of a log: what, how far, and how long it will take at this pace."""
    if not total:
        return f"{description}: {done:g} done, {seconds:.0f} s"
    left = f", about {seconds * (total - done) / done:.0f} s left" if done else ""
    return f"{description}: {done:g} of {total:g}, {seconds:.0f} s{left}"


def track(items: Iterable[T], total: int | None, description: str, show: bool) -> Iterator[T]:
    """The items, with a bar once they have taken longer than `PATIENCE`."""
    start, progress, task = time.monotonic(), None, None
    try:
        for done, item in enumerate(items):
            if show and progress is None and time.monotonic() - start > PATIENCE:
                progress = bar()
                task = progress.add_task(description, total=total, completed=done)
                progress.start()
            if progress is not None and task is not None:
                progress.update(task, completed=done)
            yield item
    finally:
        if progress is not None:
            progress.stop()
