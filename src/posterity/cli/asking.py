"""`posterity ask`: which inputs to label next, in a loop over a folder or a table with a column of answers."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import posterity as pt
from posterity.cli import options as opt
from posterity.cli.learning import on_features
from posterity.cli.networks import HEAD
from posterity.cli.output import note, report
from posterity.cli.reading import TensorExamples, read
from posterity.cli.reading.read import kind_of
from posterity.cli.reading.tables import read_table
from posterity.cli.saved import Manifest, carrying
from posterity.errors import BadData, NoData
from posterity.files import write_whole
from posterity.workflow.file import save_fit

COLUMNS = ("input", "answer")


def ask(
    data: opt.Data,
    answers: Annotated[
        Path | None, opt.out_file("A .csv file of inputs and answers: made by the first call, filled in by you.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many to ask for.")] = 10,
    target: Annotated[
        str | None, typer.Option(help="Of a table: its column of answers, empty where there is none.")
    ] = None,
    encoder: opt.Encoder = None,
    words: Annotated[
        str | None, typer.Option(help="module:function that makes rows of texts: the names of the classes are a prior.")
    ] = None,
    columns: opt.Columns = None,
    size: opt.Size = None,
    out: Annotated[
        Path | None, opt.out_file("Write the head that has learned from the answers, as `learn` does.")
    ] = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Name the inputs whose labels would say most about all the others. Answer, and ask again."""
    of_table = kind_of(data) == "table" and target is not None
    if (answers is None) != of_table:
        raise BadData(
            "answers stand in a file of their own, --answers FILE, or in a column of the table, --target COLUMN."
        )
    options = opt.reading(columns=columns, encoder=encoder, size=size, quiet=quiet)
    if of_table:
        others = tuple(name for name in read_table(Path(data)).names if name != target)
        options = replace(options, columns=options.columns or others)
    examples = read(data, options, labels=False)
    for line in examples.notes:
        note(line, quiet)
    if examples.x.ndim != 2:
        raise BadData(
            f"{data} has inputs of shape {tuple(examples.x.shape[1:])}: --encoder makes rows of features of images."
        )
    given = _of_table(Path(data), str(target), len(examples.x)) if of_table else _of_file(answers, examples)
    known = [i for i, answer in enumerate(given) if answer]
    pending = [i for i, answer in enumerate(given) if answer == "" and not of_table]
    free = torch.tensor([i for i in range(len(given)) if i not in {*known, *pending}], dtype=torch.int64)
    if not len(free):
        raise NoData(f"every input of {data} was asked for already: nothing is left to ask for.")
    fit = _fit(examples, given, known, words) if len({given[i] for i in known}) > 1 else None
    count = min(k, len(free))
    chosen = free[
        fit.ask(examples.x[free], count) if fit is not None else _apart(examples.x, known, free, count)
    ].tolist()
    names = [examples.names[i] for i in chosen]
    rows = [(name, _guess(fit, examples.x[i])) for name, i in zip(names, chosen, strict=True)]
    lines = []
    if answers is not None:
        kept = [(examples.names[i], given[i] or "") for i in (*known, *pending)]
        _write(answers, [*kept, *((name, "") for name in names)])
        lines.append(f"Write the answers into {answers}, and ask again.")
    result: dict[str, Any] = {"ask": names, "labelled": len(known), "pending": len(pending), "worth": None}
    if fit is not None:
        try:
            worth = fit.worth(count)
            lines.append(str(worth))
            result["worth"] = {
                "labels": worth.labels,
                "nll": worth.nll,
                "gain": worth.gain,
                "low": worth.low,
                "high": worth.high,
            }
        except NoData as error:
            note(str(error), quiet)
        if out is not None:
            _save(out, fit, examples, known)
            lines.append(f"Next: posterity predict {out} NEW-DATA --out predictions.csv")
    report(
        result,
        as_json,
        f"{len(names)} of {len(free):,} inputs to label next, after {len(known):,} answers",
        rows,
        lines,
    )


def _fit(examples: TensorExamples, given: list[str | None], known: list[int], words: str | None) -> pt.Fit:
    labels = [str(given[i]) for i in known]
    classes = tuple(sorted(set(labels)))
    y = torch.tensor([classes.index(label) for label in labels])
    return on_features(replace(examples, x=examples.x[known], y=y, classes=classes), None, words)


def _apart(x: Tensor, known: list[int], free: Tensor, count: int) -> Tensor:
    """Inputs far from each other and from those that are known: two classes are needed before anything else can be said."""
    unit = torch.nn.functional.normalize(x - x.mean(0), dim=1)
    chosen: list[int] = []
    nearest = torch.full((len(free),), torch.inf)
    for i in known:
        nearest = torch.minimum(nearest, (unit[free] - unit[i]).norm(dim=1))
    for _ in range(count):
        best = int(nearest.argmax()) if bool(nearest.isfinite().any()) else int(unit[free].norm(dim=1).argmax())
        chosen.append(best)
        nearest = torch.minimum(nearest, (unit[free] - unit[free[best]]).norm(dim=1))
        nearest[chosen] = -torch.inf
    return torch.tensor(chosen)


def _guess(fit: pt.Fit | None, row: Tensor) -> str:
    if fit is None:
        return ""
    found = fit.predict(row[None])
    return f"{found.classes[0]}? ({float(found.probs.max()):.0%})"


def _of_table(path: Path, target: str, count: int) -> list[str | None]:
    column = read_table(path).columns.get(target)
    if column is None:
        raise BadData(f'{path} has no column "{target}" of texts or numbers.')
    if len(column) != count:
        raise BadData(f"{path} has {len(column)} rows, and {count} can be read: fill in or drop the others first.")
    return [None if cell is None or cell != cell else str(cell) for cell in column]


def _of_file(path: Path | None, examples: TensorExamples) -> list[str | None]:
    """None for inputs that were not asked for, an empty text for those without an answer yet."""
    given: list[str | None] = [None] * len(examples.names)
    if path is None or not path.is_file():
        return given
    place = {name: i for i, name in enumerate(examples.names)}
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise BadData(f"{path} is no file of answers: its header should be {','.join(COLUMNS)}.")
    for number, row in enumerate(rows[1:], 2):
        if len(row) != 2 or row[0] not in place:
            raise BadData(f"{path}, line {number}: {row[:2]} is no input of this data and its answer.")
        given[place[row[0]]] = row[1].strip()
    return given


def _write(path: Path, rows: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([COLUMNS, *rows])
    write_whole(path, text.getvalue())


def _save(path: Path, fit: pt.Fit, examples: TensorExamples, known: list[int]) -> None:
    some = replace(examples, x=examples.x[known], rows=examples.rows[known], names=[examples.names[i] for i in known])
    manifest = Manifest(examples.recipe, HEAD, len(fit.classes), fit.classes)
    posterior = carrying(fit.posterior, manifest, replace(some, classes=fit.classes), None)
    save_fit(replace(fit, posterior=posterior), path, extra=manifest.to_json())
