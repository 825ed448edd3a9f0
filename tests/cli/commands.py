"""Small data on disk and the command line in this process, for the tests of commands."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from posterity.cli import app


def call(*arguments, code=0):
    """What a command prints on stdout and stderr; its exit code has to be the one given."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "120"})
    assert result.exit_code == code, f"{result.exit_code}: {result.output}\n{result.exception!r}"
    return result


def answer(*arguments):
    """The JSON object of a command, which has to be all of stdout."""
    return json.loads(call(*arguments, "--json").stdout)


def images(folder: Path, classes, each, seed=0, size=8):
    """Grey noise with a bright row for each class, a folder a class."""
    from PIL import Image

    chance = np.random.default_rng(seed)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            pixels = chance.integers(0, 90, (size, size), dtype=np.uint8)
            pixels[2 * number + 1] = 230
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def table(path: Path, rows=60, seed=0, gaps=(), words=False):
    """Three columns and a target that is a number, or a word."""
    chance = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "height", "weight", "price" if not words else "kind"])
        for i in range(rows):
            x = chance.normal(size=3) * (10, 20, 5) + (40, 170, 70)
            y = 100 + 2 * x[0] - x[2] + chance.normal()
            cells = [f"{v:.3f}" for v in x] + [f"{y:.3f}" if not words else ("old" if x[0] > 40 else "young")]
            out.writerow(["" if (i, j) in gaps else cell for j, cell in enumerate(cells)])
    return path
