"""What commands print: one JSON object, or a table and a few lines; and the page, if asked for."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posterity.files import write_whole


def report(
    found: Mapping[str, Any],
    as_json: bool,
    title: str,
    rows: Iterable[tuple[str, str]],
    lines: Iterable[str] = (),
    tables: Iterable[Table] = (),
) -> None:
    """A result: as JSON on stdout, or as names with values, further tables, and lines below them."""
    if as_json:
        print(json.dumps(plain(found), ensure_ascii=False))
        return
    console = Console(highlight=False)
    named = Table(box=box.SIMPLE_HEAD, show_header=False, title=words(title), title_justify="left", title_style="bold")
    named.add_column(style="dim", overflow="fold")
    named.add_column(overflow="fold")
    for name, value in rows:
        named.add_row(words(name), words(value))
    for table in (named, *tables):
        console.print(table)
    for line in lines:
        console.print(words(line), soft_wrap=True)


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1) -> Table:
    """A table with a header: so many columns of text, which may fold, then columns of numbers."""
    found = Table(box=box.SIMPLE_HEAD, header_style="dim", padding=(0, 1, 0, 0))
    for k, name in enumerate(columns):
        found.add_column(name, justify="left" if k < text else "right", overflow="fold", no_wrap=k >= text)
    for row in rows:
        found.add_row(*map(words, row))
    return found


def note(text: str, quiet: bool = False) -> None:
    """A line about what is being done, on stderr."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def words(text: str) -> Text:
    """Untrusted text as text: nothing in them reaches the terminal as a command."""
    return Text("".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text))


def plain(value: Any) -> Any:
    """JSON has no NaN: what cannot be known is null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_page(path: Path | None, made: Callable[[], str]) -> None:
    """The page, if there is a place for it."""
    if path is not None:
        write_whole(path, made())


def command_line() -> str:
    """The command as it was typed."""
    return " ".join(["posterity", *sys.argv[1:]])
