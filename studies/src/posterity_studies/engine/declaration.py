"""What a study is: a claim, the cells that test it, and how their results are laid beside the paper's."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Any

import torch
from matplotlib.figure import Figure

from posterity import __version__
from posterity.data.hashes import fingerprint
from posterity_studies.shared.sources import Needs

Arguments = Mapping[str, Any]
"""What a cell is asked: plain JSON values only, for they are its identity."""

Values = Mapping[str, Any]
"""What a cell answers: plain JSON values, rounded to what they are worth."""


class Preset(StrEnum):
    """How much of a study to run."""

    smoke = "smoke"
    cpu = "cpu"
    paper = "paper"


@dataclass(frozen=True)
class Cell:
    """One piece of work, the same whenever, wherever and after whichever others it is done."""

    study: str
    version: int
    arguments: Arguments
    source: str = ""
    """The name of the learned prior's recipe, where the cell uses one."""

    @property
    def key(self) -> str:
        """64 bits of a hash over all that decides the result."""
        return self._hash(*([self.source] if self.source else []))

    def generator(self) -> torch.Generator:
        """Randomness that belongs to this cell alone, so that order and workers change nothing.

        With another prior the draws stay the same: two recipes can be compared cell by cell.
        """
        return torch.Generator().manual_seed(int(self._hash(), 16) >> 1)

    def _hash(self, *more: str) -> str:
        identity = [self.study, self.version, self.arguments, *more]
        return fingerprint([json.dumps(identity, sort_keys=True, allow_nan=False)], digits=16)


@dataclass(frozen=True)
class Record:
    """A finished cell, as one line of the results file holds it."""

    study: str
    key: str
    arguments: Arguments
    values: Values
    seconds: float
    versions: Mapping[str, str]
    source: str = ""


CellFunction = Callable[[Arguments, torch.Generator], Values]


def record(function: CellFunction, cell: Cell) -> Record:
    """Compute a cell and time it, in seconds of the processor: on a machine that is shared they are the same.

    Sums associate differently over threads; with one a cell's digits depend on its arguments alone.
    """
    threads, start = torch.get_num_threads(), time.process_time()
    torch.set_num_threads(1)
    try:
        values = function(cell.arguments, cell.generator())
    except Exception as error:
        error.add_note(f"in study {cell.study}, cell {dict(cell.arguments)}")
        raise
    finally:
        torch.set_num_threads(threads)
    seconds = round(time.process_time() - start, 3)
    versions = {"posterity": __version__, "torch": version("torch")}
    return Record(cell.study, cell.key, cell.arguments, values, seconds, versions, cell.source)


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, for the terminal or a page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Outcome(StrEnum):
    """What became of a claim on our machines."""

    reproduced = "reproduced"
    partly = "partly reproduced"
    not_reproduced = "not reproduced"
    undecided = "not decided yet"
    """Too few cells for the rule that was declared."""
    ours = "beyond the paper"
    """A claim of our own, upheld."""
    unsupported = "not supported"
    """A claim of our own that the figures do not support."""


@dataclass(frozen=True)
class Verdict:
    """A plain answer, and the figures it rests on."""

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Study:
    """A declaration: nothing is computed until `posterity_studies.run` is given one."""

    id: str
    claim: str
    grid: Mapping[Preset, Sequence[Arguments]]
    cell: Callable[[Arguments, torch.Generator], Values]
    """A function of a module, so that workers find it by name."""
    tables: Callable[[Sequence[Record]], Sequence[Table]]
    draw: Callable[[Sequence[Record]], Figure]
    notes: Sequence[str] = ()
    """Where we differ from the paper, and why: plain sentences."""
    paper: str = ""
    """Which of the paper's figures or tables is tested; empty where the paper has none."""
    data: str = ""
    """Data, N and network in a few words."""
    verdict: Callable[[Sequence[Record]], Verdict] | None = None
    source: Needs | None = None
    """The recipe of the learned prior that a cell uses."""
    version: int = 1
    """Raise it when the cell's code changes its results: older lines are then left alone and computed again."""

    def cells(self, preset: Preset) -> list[Cell]:
        return [self._cell(arguments) for arguments in self.grid[preset]]

    def _cell(self, arguments: Arguments) -> Cell:
        recipe = self.source(arguments) if self.source else None
        return Cell(self.id, self.version, arguments, recipe.name if recipe else "")


def grid(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Every combination of the axes' values, the last axis running fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
