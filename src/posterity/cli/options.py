"""Options that several commands share, under one name with one help text each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from posterity.cli.reading import ReadOptions
from posterity.cli.reading.examples import MissingRule
from posterity.files import check_place

DATA = (
    "A folder of images (one folder a class), an .npz file with x and y, a .csv, .tsv or .parquet table, a Hugging Face data set "
    "on disk, or a set by name (mnist, …)."
)
Data = Annotated[str, typer.Argument(help=DATA, show_default=False)]
SomeData = Annotated[str | None, typer.Argument(help=DATA, show_default=False)]
FitFile = Annotated[Path, typer.Argument(help="A file that `posterity learn` or `adapt` wrote.", show_default=False)]
Network = Annotated[
    str | None,
    typer.Option(
        help='"lenet5", "mlp", "resnet8", "head" (on features), or module:function that builds the network: its code is run.'
    ),
]


def _writable(context: typer.Context, path: Path | None) -> Path | None:
    """Before an hour of work, not after it: every option that names a place to write is checked by this."""
    if path is not None and not context.resilient_parsing:
        check_place(path)
    return path


def out_file(help: str) -> Any:  # noqa: A002 (typer's word)
    """An option for a file to write."""
    return typer.Option(help=help, dir_okay=False, callback=_writable)


Out = Annotated[Path, out_file("The file to write, such as letters.fit.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")]
Target = Annotated[str | None, typer.Option(help="The column of a table that is to be predicted.")]
Columns = Annotated[
    str | None, typer.Option(help="Columns of a table to predict from, with commas; all others by default.")
]
Groups = Annotated[
    str | None,
    typer.Option(
        help="The column (of .npz the array) that says which examples belong together, such as a person: left out together, and "
        "counted as one by certificates."
    ),
]
Task = Annotated[
    Literal["classification", "regression"] | None,
    typer.Option(help="What the target is; by default text and few whole numbers are classes."),
]
Text = Annotated[
    str | None, typer.Option(help="Columns of a table to take for text though they look like numbers, with commas.")
]
Missing = Annotated[
    MissingRule | None,
    typer.Option(
        help="Missing values of a table: refuse them, drop their rows, or fill in the mean. By default as the fit had it; refuse."
    ),
]
Size = Annotated[int | None, typer.Option(min=8, max=1024, help="Pixels on a side that images are brought to; 28.")]
Channels = Annotated[
    int | None, typer.Option(min=1, max=3, help="1 for grey, 3 for colour; as the images are by default.")
]
Labels = Annotated[
    str | None,
    typer.Option(help="Labels of inputs that have none: a .npy array, or a table; --target names its column."),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="What makes features of images: timm:NAME, torchvision:NAME, an .onnx file, or module:function, whose code is run."
    ),
]
Part = Annotated[str, typer.Option(help="Which part of a set that has parts: train, test, or what it calls them.")]
Seed = Annotated[int, typer.Option(help="Of all that is random: the same seed, the same result.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Page = Annotated[Path | None, out_file("Write the result as an HTML page too.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say how it would be learned, with what memory and time, and stop.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


def command(
    record: type, *, without: Sequence[str] = (), first: Mapping[str, Any] | None = None
) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    """Make a command of a function that takes one record: every field of the record is an argument or option.

    Args:
        record: a dataclass whose fields are annotated as typer wants it.
        without: fields that keep their default and are no options of this command.
        first: fields that come first, annotated in another way than in the record.
    """
    found = get_type_hints(record, include_extras=True)
    kinds = dict(first or {}) | {name: kind for name, kind in found.items() if name not in (*without, *(first or {}))}
    defaults = {field.name: field.default for field in fields(record) if field.name not in (first or {})}

    def decorate(function: Callable[[Any], None]) -> Callable[..., None]:
        def made(**given: Any) -> None:
            function(record(**given))

        made.__name__, made.__doc__, made.__annotations__ = function.__name__, function.__doc__, kinds
        made.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=_default(defaults.get(name, MISSING)))
                for name, kind in kinds.items()
            ]
        )
        return made

    return decorate


def _default(value: Any) -> Any:
    return Parameter.empty if value is MISSING else value


def reading(
    target: str | None = None,
    columns: str | None = None,
    text: str | None = None,
    task: Literal["classification", "regression"] | None = None,
    missing: MissingRule | None = None,
    size: int | None = None,
    channels: int | None = None,
    part: str = "train",
    groups: str | None = None,
    labels: str | None = None,
    encoder: str | None = None,
    quiet: bool = False,
) -> ReadOptions:
    """What a user asks of the data, from the options."""
    named = _names(columns), _names(text)
    return ReadOptions(target, *named, task, missing, size, channels, part, groups, labels, encoder, quiet)


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (given or "").split(",") if name.strip())
