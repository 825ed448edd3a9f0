"""A study small enough to kill, interrupt and break in many ways."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure

from posterity.errors import NotFinite
from posterity_studies import Arguments, Preset, Record, Study, Table, Values, grid, run

CELLS = grid(row=range(6), column=["a", "b", "c", "d"])


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    time.sleep(0.01)
    return {"draw": float(torch.rand((), generator=generator)), "row": arguments["row"]}


def failing(arguments: Arguments, generator: torch.Generator) -> Values:
    if arguments["row"] == 1:
        raise NotFinite("row 1 is not finite")
    return cell(arguments, generator)


def dying(arguments: Arguments, generator: torch.Generator) -> Values:
    if arguments["row"] == 1:
        os._exit(9)
    return cell(arguments, generator)


def interrupted(arguments: Arguments, generator: torch.Generator) -> Values:
    if arguments["row"] == 1:
        raise KeyboardInterrupt
    return cell(arguments, generator)


def tables(records: object) -> list[Table]:
    assert isinstance(records, list)
    return [Table("Draws", ["cell", "draw"], [[r.key, f"{r.values['draw']:.3f}"] for r in records])]


def draw(records: object) -> Figure:
    figure = Figure()
    figure.subplots()
    return figure


def toy(function: object = cell, version: int = 1) -> Study:
    return Study(
        id="toy",
        claim="Draws are draws.",
        grid={Preset.smoke: CELLS[:4], Preset.cpu: CELLS, Preset.paper: CELLS},
        cell=function,  # type: ignore[arg-type]
        tables=tables,
        draw=draw,
        version=version,
    )


def run_toy(folder: Path, workers: int) -> list[Record]:
    return run(toy(), Preset.paper, folder, workers)
