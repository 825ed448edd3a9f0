"""`posterity data`: a look at data before anything is learned from it, and parts of it."""

from __future__ import annotations

import csv
import io
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from posterity.cli import options as opt
from posterity.cli.output import report
from posterity.cli.reading import ReadOptions, read
from posterity.cli.reading.columns import check_target, read_groups
from posterity.cli.reading.images import image_files
from posterity.cli.reading.read import kind_of
from posterity.cli.reading.tables import PARQUET, read_table, text_rows
from posterity.errors import BadData
from posterity.files import check_place, replacing, write_whole, writing

Part = Callable[..., set[int]]
"""From labels to the numbers of the examples in the first part."""

app = typer.Typer(no_args_is_help=True, help="Look at data, and take parts of it.")


@app.callback()
def data() -> None:
    """Look at data, and take parts of it."""


@app.command()
def inspect(
    where: opt.Data,
    target: opt.Target = None,
    columns: opt.Columns = None,
    text: opt.Text = None,
    task: opt.Task = None,
    missing: opt.Missing = None,
    size: opt.Size = None,
    channels: opt.Channels = None,
    part: opt.Part = "train",
    as_json: opt.Json = False,
) -> None:
    """Read data as `learn` would, and say what is there."""
    found = read(where, opt.reading(target, columns, text, task, missing, size, channels, part), labels=False)
    x = found.rows
    result: dict[str, object] = {
        "kind": kind_of(where),
        "examples": len(x),
        "shape": list(x.shape[1:]),
        "columns": {c.name: list(c.categories) for c in found.recipe.columns},
        "task": found.recipe.task if found.y is not None else None,
        "classes": dict.fromkeys(found.classes, 0),
    }
    rows = [
        ("kind", str(result["kind"])),
        ("examples", f"{len(x):,} of {'×'.join(map(str, x.shape[1:]))}"),
        ("numbers", f"{float(x.min()):.4g} to {float(x.max()):.4g}, mean {float(x.mean()):.4g}"),
    ]
    rows += found.recipe.rows()
    if found.y is None:
        rows.append(("labels", "none" + (": name their column with --target" if result["kind"] == "table" else "")))
    elif found.classes:
        counts = Counter(found.classes[i] for i in found.y.tolist())
        result["classes"] = {c: counts[c] for c in found.classes}
        rows.append(("classes", ", ".join(f"{c} ({counts[c]:,})" for c in found.classes)))
    else:
        r = found.recipe
        rows.append(("target", f"numbers, mean {r.target_mean:.4g}, standard deviation {r.target_scale:.4g}"))
    rows += [("note", line) for line in found.notes]
    report(result, as_json, where, rows)


@app.command()
def split(
    where: opt.Data,
    first: Annotated[
        Path, typer.Argument(help="Where the part goes: a folder, or a file of the same kind.", show_default=False)
    ],
    rest: Annotated[Path, typer.Argument(help="Where all the rest goes.", show_default=False)],
    per_class: Annotated[int | None, typer.Option(min=1, help="Examples of each class in the first part.")] = None,
    share: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Share of all examples in the first part.")
    ] = None,
    target: opt.Target = None,
    groups: opt.Groups = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Split data into two parts at random: so many of each class, or a share. Images are copied."""
    if (per_class is None) == (share is None):
        raise BadData("say either --per-class N or --share P.")
    if groups is not None and (per_class is not None or kind_of(where) != "table"):
        raise BadData(
            "--groups goes with --share, and with a table: groups stay whole, and have no class of their own."
        )
    for path in (first, rest):
        if path.exists():
            raise BadData(f"{path} is there already: choose another name.")
        check_place(path)
    part = partial(_taken, per_class=per_class, share=share, chance=random.Random(seed))
    match kind_of(where):
        case "images":
            taken, count = _split_images(Path(where), first, rest, part)
        case "table":
            if per_class is not None and target is None:
                raise BadData("--per-class needs --target: the column of the classes.")
            taken, count = _split_table(Path(where), first, rest, target, groups, part)
        case _:
            taken, count = _split_arrays(where, first, rest, per_class is not None, part)
    rows_ = [(str(first), f"{len(taken):,} examples"), (str(rest), f"{count - len(taken):,} examples")]
    report({str(first): len(taken), str(rest): count - len(taken)}, as_json, f"{where} in two parts", rows_)


def _split_images(where: Path, first: Path, rest: Path, part: Part) -> tuple[set[int], int]:
    files, classes = image_files(where)
    taken = part([c or "" for _, c in files], by_class=bool(classes))
    for i, (path, _) in enumerate(files):
        to = (first if i in taken else rest) / path.relative_to(where)
        with writing(to, to.parent):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
    return taken, len(files)


def _split_table(
    where: Path, first: Path, rest: Path, target: str | None, groups: str | None, part: Part
) -> tuple[set[int], int]:
    """Split a text table: rows as they stand, each part with the header."""
    check_target(table := read_table(where), ReadOptions(target=target), False)
    values = table.columns[target] if target is not None and target in table.columns else [""] * len(table.places)
    together = read_groups(table, groups, np.arange(len(values)))
    if together is None:
        taken = part([str(value) for value in values])
    else:
        names, number = np.unique(together, return_inverse=True)
        inside = part(names.tolist())
        taken = {i for i, k in enumerate(number.tolist()) if k in inside}
    for path, first_part in ((first, True), (rest, False)):
        rows = [i for i in range(len(values)) if (i in taken) == first_part]
        if where.suffix.lower() in PARQUET:
            import pyarrow.parquet as parquet

            with replacing(path) as draft:
                parquet.write_table(parquet.read_table(where).take(rows), draft)
        else:
            header, cells, _, _ = text_rows(where)
            text = io.StringIO()
            csv.writer(text, "excel-tab" if path.suffix == ".tsv" else "excel").writerows(
                [header, *(cells[i] for i in rows)]
            )
            write_whole(path, text.getvalue())
    return taken, len(values)


def _split_arrays(where: str, first: Path, rest: Path, labels: bool, part: Part) -> tuple[set[int], int]:
    found = read(where, labels=labels)
    y = found.y if found.y is None or found.classes else found.y * found.recipe.target_scale + found.recipe.target_mean
    names = [""] * len(found.x) if y is None else [str(v) for v in y.tolist()]
    taken = part(names)
    mask = np.array([i in taken for i in range(len(names))])
    for path, keep in ((first, mask), (rest, ~mask)):
        arrays = {"x": found.rows.numpy()[keep]}
        if y is not None:
            arrays["y"] = np.array([found.classes[i] for i in y[keep]] if found.classes else y[keep])
        with replacing(path) as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    return taken, len(names)


def _taken(
    labels: list[str], *, per_class: int | None, share: float | None, chance: random.Random, by_class: bool = True
) -> set[int]:
    """Indices of the examples in the first part."""
    order = list(range(len(labels)))
    chance.shuffle(order)
    if per_class is None or not by_class:
        return set(order[: round((share or 0.0) * len(order))])
    taken: set[int] = set()
    counts: Counter[str] = Counter()
    for i in order:
        if counts[labels[i]] < per_class:
            counts[labels[i]] += 1
            taken.add(i)
    short = [c for c in set(labels) if counts[c] < per_class]
    if short:
        raise BadData(f'class "{sorted(short)[0]}" has {counts[sorted(short)[0]]} examples, fewer than {per_class}.')
    return taken
