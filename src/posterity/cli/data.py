"""`posterity data`: a look at data before anything is learned from it, and parts of it."""

from __future__ import annotations

import csv
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from posterity.cli import options as opt
from posterity.cli.reading import read
from posterity.cli.reading.images import image_files
from posterity.cli.reading.read import kind_of
from posterity.cli.telling import tell
from posterity.errors import BadData

app = typer.Typer(no_args_is_help=True, help="Look at data, and take parts of it.")


@app.callback()
def data() -> None:
    """Look at data, and take parts of it."""


@app.command()
def inspect(
    where: opt.Data,
    target: opt.Target = None,
    columns: opt.Columns = None,
    task: opt.Task = None,
    missing: opt.Missing = "refuse",
    size: opt.Size = None,
    channels: opt.Channels = None,
    part: opt.Part = "train",
    as_json: opt.Json = False,
) -> None:
    """Read data as `learn` would, and say what is there."""
    found = read(where, opt.wish(target, columns, task, missing, size, channels, part), labels=False)
    x = found.x
    result: dict[str, object] = {
        "kind": kind_of(where),
        "examples": len(x),
        "shape": list(x.shape[1:]),
        "task": found.recipe.task if found.y is not None else None,
        "classes": dict.fromkeys(found.classes, 0),
    }
    rows = [
        ("kind", str(result["kind"])),
        ("examples", f"{len(x):,} of {'×'.join(map(str, x.shape[1:]))}"),
        ("numbers", f"{float(x.min()):.4g} to {float(x.max()):.4g}, mean {float(x.mean()):.4g}"),
    ]
    if found.recipe.columns:
        rows.append(("columns", ", ".join(found.recipe.columns)))
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
    tell(result, as_json, where, rows)


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
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Split data into two parts at random: so many of each class, or a share. Images are copied."""
    if (per_class is None) == (share is None):
        raise BadData("say either --per-class N or --share P.")
    for path in (first, rest):
        if path.exists():
            raise BadData(f"{path} is there already: choose another name.")
    chance = random.Random(seed)
    kind = kind_of(where)
    if kind == "images":
        files, classes = image_files(Path(where))
        taken = _taken([c or "" for _, c in files], per_class if classes else None, share, chance)
        for i, (path, _) in enumerate(files):
            to = (first if i in taken else rest) / path.relative_to(where)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
        count = len(files)
    elif kind == "table":
        with Path(where).open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [row for row in csv.reader(file) if row]
        if per_class is not None and target is None:
            raise BadData("--per-class needs --target: the column of the classes.")
        labels = [row[header.index(target)] for row in rows] if target and target in header else [""] * len(rows)
        taken = _taken(labels, per_class, share, chance)
        for path, inside in ((first, True), (rest, False)):
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([header, *(row for i, row in enumerate(rows) if (i in taken) == inside)])
        count = len(rows)
    else:
        found = read(where, labels=per_class is not None)
        names = [str(v) for v in found.y.tolist()] if found.y is not None else [""] * len(found.x)
        taken = _taken(names, per_class, share, chance)
        mask = np.array([i in taken for i in range(len(names))])
        for path, keep in ((first, mask), (rest, ~mask)):
            labels_ = (
                {}
                if found.y is None
                else {"y": np.array([found.classes[i] for i in found.y[keep]] if found.classes else found.y[keep])}
            )
            np.savez(path, allow_pickle=False, x=found.x.numpy()[keep], **labels_)
        count = len(names)
    rows_ = [(str(first), f"{len(taken):,} examples"), (str(rest), f"{count - len(taken):,} examples")]
    tell({str(first): len(taken), str(rest): count - len(taken)}, as_json, f"{where} in two parts", rows_)


def _taken(labels: list[str], per_class: int | None, share: float | None, chance: random.Random) -> set[int]:
    """The numbers of the examples in the first part."""
    order = list(range(len(labels)))
    chance.shuffle(order)
    if per_class is None:
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
