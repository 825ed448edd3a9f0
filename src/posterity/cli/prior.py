"""`posterity prior`: look at a prior before trusting it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posterity.algebra import KroneckerSum, Matrix
from posterity.errors import PosterityError
from posterity.gaussian.card import Card
from posterity.gaussian.spectrum import FACTOR_LIMIT, Spectrum, spectrum
from posterity.gaussian.storage import LIMIT, Stored, read

app = typer.Typer(no_args_is_help=True, help="Priors as files: what is in them.")

BARS = "▁▂▃▄▅▆▇█"


@app.callback()
def prior() -> None:
    """Priors as files: what is in them."""


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A prior that was saved with .save(path).")],
    limit: Annotated[int, typer.Option(min=1, help="The largest file to read, in bytes.")] = LIMIT,
) -> None:
    """Print a prior as a readable card: where it comes from, and how sure it is of each block."""
    stored = read(file, limit_bytes=limit)
    console = Console(highlight=False)
    console.print(_card(file, stored))
    for part in _blocks(stored):
        console.print(part)


def _card(file: Path, stored: Stored) -> Table:
    gaussian, card = stored.gaussian, stored.gaussian.card
    table = Table(
        title=_plain(file.name),
        title_justify="left",
        title_style="bold",
        box=None,
        show_header=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in {**_story(card), **_facts(stored)}.items():
        if value:
            table.add_row(name, _plain(value))
    dtypes = sorted({str(matrix.dtype).removeprefix("torch.") for matrix in gaussian.precision.values()})
    table.add_row(
        "parameters", f"{gaussian.size:,} in {len(gaussian.blocks)} blocks, precisions in {', '.join(dtypes)}"
    )
    table.add_row("file", f"{_bytes(stored.size)}, intact")
    return table


def _story(card: Card) -> dict[str, str]:
    return {
        "about": card.text,
        "licence": card.licence,
        "learned from": f"{card.count:,} examples" if card.count else "",
        "source": card.source,
        "likelihood": card.likelihood,
        "curvature": card.estimator,
        "γ": "" if card.precision is None else f"{card.precision:g}",
        "architecture": card.architecture,
        "seed": "" if card.seed is None else str(card.seed),
    }


def _facts(stored: Stored) -> dict[str, str]:
    return {
        "has seen": str(stored.gaussian.provenance),
        "learned with": _versions(stored.gaussian.card.versions),
        "written by": _versions(stored.written_by),
    }


def _blocks(stored: Stored) -> Iterator[Table | Text]:
    """Several narrow tables rather than a wide one: eighty columns must do."""
    gaussian, card = stored.gaussian, stored.gaussian.card
    sizes = _table("block", "shape", "structure", "‖mean‖", "log det", "trace")
    spectra = _table("block", "condition", "smallest", "median", "largest", "eigenvalues")
    notes: dict[str, None] = {}
    for name, matrix in gaussian.precision.items():
        out, inp = matrix.shape
        logdet, measures = _measures(matrix, name, notes)
        norm, trace = _number(float(gaussian.mean[name].double().norm())), _number(float(matrix.trace()))
        sizes.add_row(_plain(name), f"{out}×{inp}", _structure(matrix), norm, logdet, trace)
        spectra.add_row(_plain(name), *measures)
    yield sizes
    yield spectra
    if card.scales or card.compression:
        update = _table("block", "α", "β", "τ", "error of one pair")
        for name in dict.fromkeys([*card.scales, *card.compression]):
            scales = [_number(x) for x in card.scales[name]] if name in card.scales else [""] * 3
            error = f"{card.compression[name]:.1e}" if name in card.compression else ""
            update.add_row(_plain(name), *scales, error)
        yield update
    for note in notes:
        yield Text(f"• {note}", style="dim")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", padding=(0, 1, 0, 0))
    for name in columns:
        words = name in ("block", "shape", "structure", "eigenvalues")
        table.add_column(name, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    return table


def _measures(matrix: Matrix, name: str, notes: dict[str, None]) -> tuple[str, list[str]]:
    """The log det and the spectrum; a matrix that has none gives a note instead."""
    none = [*["–"] * 4, ""]
    try:
        logdet, found = f"{float(matrix.logdet()):.5g}", spectrum(matrix)
    except (PosterityError, RuntimeError) as error:
        notes[f"{_plain(name)}: {error}"] = None
        return "–", none
    if found is None:
        notes[f"No spectrum where a side is above {FACTOR_LIMIT:,}: it would take minutes."] = None
        return logdet, none
    if not found.exact:
        notes["≈ is estimated (Lanczos): the ends well, the middle roughly."] = None
    about = "" if found.exact else "≈"
    values = (found.condition, found.smallest, found.median, found.largest)
    return logdet, [*(about + _number(x) for x in values), _sparkline(found)]


def _sparkline(found: Spectrum) -> str:
    """Shares of the eigenvalues from the smallest to the largest, on a logarithmic axis. An empty bin is a space."""
    most = max(found.density)
    return "".join(BARS[min(7, int(8 * share / most))] if share else " " for share in found.density)


def _structure(matrix: Matrix) -> str:
    terms = f" of {len(matrix.terms)}" if isinstance(matrix, KroneckerSum) else ""
    return type(matrix).__name__ + terms


def _number(x: float) -> str:
    return f"{x:.3g}"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _bytes(n: int) -> str:
    size = float(n)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def _plain(text: str) -> Text:
    """A stranger's words as words: nothing in them reaches the terminal as a command."""
    return Text("".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text))
