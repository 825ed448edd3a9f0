"""Options that several commands share, under one name with one help text each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from posterity.cli.reading import Wish

DATA = (
    "A folder of images (one folder a class), an .npz file with x and y, a .csv with a header, a Hugging Face data set on disk, "
    "or a set by name (mnist, …)."
)
Data = Annotated[str, typer.Argument(help=DATA, show_default=False)]
FitFolder = Annotated[
    Path, typer.Argument(help="A folder that `posterity learn` or `adapt` wrote.", show_default=False)
]
Network = Annotated[
    str | None,
    typer.Option(help='"lenet5", "mlp", "resnet8", or module:function that builds the network: its code is run.'),
]
Out = Annotated[Path, typer.Option(help="The folder to write.", file_okay=False, show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it is there.")]
Target = Annotated[str | None, typer.Option(help="The column of a table that is to be predicted.")]
Columns = Annotated[
    str | None, typer.Option(help="Columns of a table to predict from, with commas; all others by default.")
]
Task = Annotated[
    Literal["classification", "regression"] | None,
    typer.Option(help="What the target is; by default text and few whole numbers are classes."),
]
Missing = Annotated[
    Literal["refuse", "drop"], typer.Option(help="Rows of a table with missing values: refuse them, or leave them out.")
]
Size = Annotated[int | None, typer.Option(min=8, max=1024, help="Pixels on a side that images are brought to; 28.")]
Channels = Annotated[
    int | None, typer.Option(min=1, max=3, help="1 for grey, 3 for colour; as the images are by default.")
]
Part = Annotated[str, typer.Option(help="Which part of a set that has parts: train, test, or what it calls them.")]
Seed = Annotated[int, typer.Option(help="Of all that is random: the same seed, the same result.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Page = Annotated[Path | None, typer.Option(help="Write the result as an HTML page too.", dir_okay=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what memory and time it would take, and stop.")]
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


def wish(
    target: str | None = None,
    columns: str | None = None,
    task: Literal["classification", "regression"] | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    size: int | None = None,
    channels: int | None = None,
    part: str = "train",
) -> Wish:
    """What a user asks of the data, from the options."""
    chosen = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
    return Wish(target, chosen, task, missing, size, channels, part)
