"""Progress bars for whatever takes longer than two seconds. Open to all parts, like `errors`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
PATIENCE = 2.0
"""Seconds of work before a bar appears: quick calls stay quiet."""


def bar() -> Progress:
    """A bar in the house style; it vanishes when done."""
    # Loaded when a bar is shown: most calls show none.
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), transient=True)


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
