"""`posterity prior`: look at a prior before trusting it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from posterity.algebra import KroneckerSum, Matrix
from posterity.cli import options as opt
from posterity.cli.learning import prior_learn
from posterity.cli.output import command_line, plain, write_page
from posterity.cli.output import words as _plain
from posterity.cli.saved import manifest_of, open_saved
from posterity.errors import BlockMismatch, NotAFit, PosterityError
from posterity.gaussian import Gaussian
from posterity.gaussian.card import Card
from posterity.gaussian.container import LIMIT
from posterity.gaussian.spectrum import FACTOR_LIMIT, Spectrum, spectrum
from posterity.gaussian.storage import Stored, read
from posterity.pages import prior_page
from posterity.workflow.cost import size as _bytes
from posterity.workflow.file import naming, read_manifest

app = typer.Typer(no_args_is_help=True, help="Priors as files: learn one, look at it, compare two.")
app.command("learn")(prior_learn)

BARS = "▁▂▃▄▅▆▇█"


@app.callback()
def prior() -> None:
    """Priors as files: learn one, look at it, compare two."""


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A prior, or a fit, whose posterior is shown.")],
    limit: Annotated[int, typer.Option(min=1, help="The largest file to read, in bytes.")] = LIMIT,
    page: opt.Page = None,
    as_json: opt.Json = False,
) -> None:
    """Print a prior as a readable card: where it comes from, and how sure it is of each block."""
    stored = _stored(file, limit)
    story = {name: value for name, value in {**_story(stored.gaussian.card), **_facts(stored)}.items() if value}
    if as_json:
        print(json.dumps(plain(_values(stored) | {"file": str(file)}), ensure_ascii=False))
    else:
        console = Console(highlight=False)
        console.print(_card(file, stored))
        for part in _blocks(stored):
            console.print(part)
    write_page(page, lambda: prior_page(file.name, story, {file.name: stored.gaussian}, command_line()))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="A prior.", show_default=False)],
    second: Annotated[Path, typer.Argument(help="Another for the same network.", show_default=False)],
    page: opt.Page = None,
    as_json: opt.Json = False,
) -> None:
    """Compare two priors block by block: how far apart their means are, and how firm each is."""
    one, other = (_stored(path).gaussian for path in (first, second))
    shared = [name for name in one.blocks if name in other.blocks and one.mean[name].shape == other.mean[name].shape]
    if not shared:
        raise BlockMismatch(f"{first} and {second} have no block in common: they are for different networks.")
    differ = sorted({*one.blocks, *other.blocks} - set(shared))
    table, found = _table("block", "shape", "distance of means", "log det 1", "log det 2", "KL(1 ‖ 2)"), {}
    for name in shared:
        apart = float((one.mean[name] - other.mean[name]).double().norm())
        alone = [gaussian.restricted([name]) for gaussian in (one, other)]
        dets = [_tried(gaussian.precision[name].logdet) for gaussian in alone]
        kl = _tried(partial(alone[0].kl, alone[1]))
        found[name] = {"distance": apart, "log_det_1": dets[0], "log_det_2": dets[1], "kl": kl}
        shape = "×".join(map(str, one.mean[name].shape))
        table.add_row(_plain(name), shape, _number(apart), *(f"{d:.5g}" for d in dets), _number(kl))
    if as_json:
        print(json.dumps(plain({"first": str(first), "second": str(second), "blocks": found, "only_in_one": differ})))
    else:
        console = Console(highlight=False)
        console.print(table)
        if differ:
            console.print(_plain(f"In one of them only, or of another shape: {', '.join(differ)}."))
    story = {"first": str(first), "second": str(second), "blocks in common": f"{len(shared)}"}
    both = {f"1: {first.name}": one.restricted(shared), f"2: {second.name}": other.restricted(shared)}
    write_page(page, lambda: prior_page(f"{first.name} and {second.name}", story, both, command_line()))


def _stored(path: Path, limit: int = LIMIT) -> Stored:
    """A prior's file; of a fit, what it hands down."""
    if path.is_dir():
        kind = "prior" if isinstance(open_saved(path).content, Gaussian) else "posterior"
        return read(path / f"{kind}.safetensors", limit_bytes=limit)
    try:
        found = read_manifest(path, limit_bytes=limit)
    except NotAFit:
        return read(path, limit_bytes=limit)
    with naming(path):
        return Stored(found.gaussian("posterior"), dict(found.raw["written_by"]), path.stat().st_size)


def _tried(value: Callable[[], Tensor]) -> float:
    """A number, or NaN where a matrix has none."""
    try:
        return float(value())
    except (PosterityError, RuntimeError):
        return math.nan


def _values(stored: Stored) -> dict[str, Any]:
    """A prior's card and blocks as plain values."""
    gaussian = stored.gaussian
    blocks = {
        name: {"shape": list(m.shape), "structure": _structure(m), "log_det": _tried(m.logdet)}
        for name, m in gaussian.precision.items()
    }
    card = {**_story(gaussian.card), **_facts(stored), "classes": list(gaussian.card.classes)}
    return {"card": card, "parameters": gaussian.size, "bytes": stored.size, "blocks": blocks}


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
        **_reading(card),
    }


def _reading(card: Card) -> dict[str, str]:
    """How data is read for it, if the command line has written so."""
    manifest = manifest_of(card)
    return {} if manifest is None else {"network": manifest.network or "", **dict(manifest.recipe.rows())}


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
