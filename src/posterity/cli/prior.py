"""`posterity prior`: look at a prior before trusting it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from torch import Tensor

from posterity import zoo
from posterity.algebra import KroneckerSum, Matrix
from posterity.cli import options as opt
from posterity.cli.learning import prior_learn
from posterity.cli.output import command_line, grid, report, write_page
from posterity.cli.saved import manifest_of
from posterity.errors import BlockMismatch, NotAFit, PosterityError
from posterity.gaussian import Gaussian
from posterity.gaussian.container import LIMIT, naming
from posterity.gaussian.spectrum import FACTOR_LIMIT, Spectrum, spectrum
from posterity.gaussian.storage import FileContent, read
from posterity.pages import prior_page
from posterity.workflow.cost import size as _bytes
from posterity.workflow.file import read_manifest

app = typer.Typer(no_args_is_help=True, help="Priors as files: learn one, look at it, compare two.")
app.command("learn")(prior_learn)

BARS = "▁▂▃▄▅▆▇█"


@app.callback()
def prior() -> None:
    """Priors as files: learn one, look at it, compare two."""


@app.command("zoo")
def listed(as_json: opt.Json = False) -> None:
    """List the priors of the zoo: what they have seen, how large they are, and how to get them."""
    found = {
        entry.name: {
            "for": entry.network,
            "has seen": entry.seen,
            "size": f"{entry.size / 2**20:.1f} MB",
            "licence": entry.licence,
            "here": "yes" if entry.path.is_file() else entry.make,
        }
        for entry in zoo.entries()
    }
    columns = ("prior", "for", "has seen", "size", "licence", "here")
    table = grid(columns, ([name, *entry.values()] for name, entry in found.items()), len(columns))
    report(found, as_json, "Priors of the zoo", [], tables=[table])


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A prior, or a fit, whose posterior is shown.")],
    limit: Annotated[int, typer.Option(min=1, help="The largest file to read, in bytes.")] = LIMIT,
    page: opt.Page = None,
    as_json: opt.Json = False,
) -> None:
    """Print a prior as a readable card: where it comes from, and how sure it is of each block."""
    stored = _stored(file, limit)
    gaussian = stored.gaussian
    story = _story(stored)
    shown = {name: value for name, value in story.items() if value}
    dtypes = sorted({str(matrix.dtype).removeprefix("torch.") for matrix in gaussian.precision.values()})
    rows = [
        *shown.items(),
        ("parameters", f"{gaussian.size:,} in {len(gaussian.blocks)} blocks, precisions in {', '.join(dtypes)}"),
        ("file", f"{_bytes(stored.size)}, intact"),
    ]
    blocks = {
        name: {"shape": list(m.shape), "structure": _structure(m), "log_det": _tried(m.logdet)}
        for name, m in gaussian.precision.items()
    }
    found = {"card": story | {"classes": list(gaussian.card.classes)}, "parameters": gaussian.size}
    notes: dict[str, None] = {}
    report(
        found | {"bytes": stored.size, "blocks": blocks, "file": str(file)},
        as_json,
        file.name,
        rows,
        notes,
        _tables(gaussian, notes),
    )
    write_page(page, lambda: prior_page(file.name, shown, {file.name: gaussian}, command_line()))


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
    found = {}
    for name in shared:
        here, there = (gaussian.restricted([name]) for gaussian in (one, other))
        found[name] = {
            "distance": float((one.mean[name] - other.mean[name]).double().norm()),
            "log_det_1": _tried(here.precision[name].logdet),
            "log_det_2": _tried(there.precision[name].logdet),
            "kl": _tried(partial(here.kl, there)),
        }
    columns = ("block", "shape", "distance of means", "log det 1", "log det 2", "KL(1 ‖ 2)")
    rows = (
        [
            name,
            _size(one.precision[name]),
            f"{b['distance']:.3g}",
            f"{b['log_det_1']:.5g}",
            f"{b['log_det_2']:.5g}",
            f"{b['kl']:.3g}",
        ]
        for name, b in found.items()
    )
    story = {"first": str(first), "second": str(second), "blocks in common": f"{len(shared)}"}
    result = {"first": str(first), "second": str(second), "blocks": found, "only_in_one": differ}
    lines = [f"In one of them only, or of another shape: {', '.join(differ)}."] if differ else []
    report(result, as_json, "Two priors", story.items(), lines, [grid(columns, rows, 2)])
    both = {f"1: {first.name}": one.restricted(shared), f"2: {second.name}": other.restricted(shared)}
    write_page(page, lambda: prior_page(f"{first.name} and {second.name}", story, both, command_line()))


def _stored(path: Path, limit: int = LIMIT) -> FileContent:
    """A prior's file; of a fit, what it hands down."""
    try:
        found = read_manifest(path, limit_bytes=limit)
    except NotAFit:
        return read(path, limit_bytes=limit)
    with naming(path):
        return FileContent(found.gaussian("posterior"), dict(found.raw["written_by"]), path.stat().st_size)


def _tried(value: Callable[[], Tensor]) -> float:
    """A number, or NaN where a matrix has none."""
    try:
        return float(value())
    except (PosterityError, RuntimeError):
        return math.nan


def _story(stored: FileContent) -> dict[str, str]:
    """Where a prior comes from, and how data is read for it if the command line has written so."""
    card, manifest = stored.gaussian.card, manifest_of(stored.gaussian.card)
    reading = {} if manifest is None else {"network": manifest.network or "", **dict(manifest.recipe.rows())}
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
        **reading,
        "has seen": str(stored.gaussian.provenance),
        "learned with": _versions(stored.gaussian.card.versions),
        "written by": _versions(stored.written_by),
    }


def _tables(gaussian: Gaussian, notes: dict[str, None]) -> Iterator[Table]:
    """Several narrow tables rather than a wide one: eighty columns must do. What has to be said of them goes to the notes."""
    card, measured = gaussian.card, {name: _measures(m, name, notes) for name, m in gaussian.precision.items()}
    sizes = []
    for name, m in gaussian.precision.items():
        norm, trace = float(gaussian.mean[name].double().norm()), float(m.trace())
        sizes.append([name, _size(m), _structure(m), f"{norm:.3g}", measured[name][0], f"{trace:.3g}"])
    yield grid(("block", "shape", "structure", "‖mean‖", "log det", "trace"), sizes, 3)
    spectra = ([name, *found[1:]] for name, found in measured.items())
    yield grid(("block", "condition", "smallest", "median", "largest", "eigenvalues"), spectra)
    if updated := dict.fromkeys([*card.scales, *card.compression]):
        scales = {name: [f"{x:.3g}" for x in found] for name, found in card.scales.items()}
        errors = {name: f"{x:.1e}" for name, x in card.compression.items()}
        rows = ([name, *scales.get(name, [""] * 3), errors.get(name, "")] for name in updated)
        yield grid(("block", "α", "β", "τ", "error of one pair"), rows)


def _measures(matrix: Matrix, name: str, notes: dict[str, None]) -> list[str]:
    """The log det and the spectrum; a matrix that has none gives a note instead."""
    none = ["–"] * 4 + [""]
    try:
        logdet, found = f"{float(matrix.logdet()):.5g}", spectrum(matrix)
    except (PosterityError, RuntimeError) as error:
        notes[f"{name}: {error}"] = None
        return ["–", *none]
    if found is None:
        notes[f"No spectrum where a side is above {FACTOR_LIMIT:,}: it would take minutes."] = None
        return [logdet, *none]
    if not found.exact:
        notes["≈ is estimated (Lanczos): the ends well, the middle roughly."] = None
    about = "" if found.exact else "≈"
    values = (found.condition, found.smallest, found.median, found.largest)
    return [logdet, *(f"{about}{x:.3g}" for x in values), _sparkline(found)]


def _sparkline(found: Spectrum) -> str:
    """Shares of the eigenvalues from the smallest to the largest, on a logarithmic axis. An empty bin is a space."""
    most = max(found.density)
    return "".join(BARS[min(7, int(8 * share / most))] if share else " " for share in found.density)


def _structure(matrix: Matrix) -> str:
    terms = f" of {len(matrix.terms)}" if isinstance(matrix, KroneckerSum) else ""
    return type(matrix).__name__ + terms


def _size(matrix: Matrix) -> str:
    return "×".join(map(str, matrix.shape))


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
