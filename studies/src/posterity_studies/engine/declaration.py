"""What a study is: a claim, the cells that test it, and how their results are laid beside the paper's."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from matplotlib.figure import Figure

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

    @property
    def key(self) -> str:
        """64 bits of a hash over all that decides the result."""
        identity = json.dumps([self.study, self.version, self.arguments], sort_keys=True, allow_nan=False)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def generator(self) -> torch.Generator:
        """Randomness that belongs to this cell alone, so that order and workers change nothing."""
        return torch.Generator().manual_seed(int(self.key, 16) >> 1)


@dataclass(frozen=True)
class Record:
    """A finished cell, as one line of the results file holds it."""

    study: str
    key: str
    arguments: Arguments
    values: Values
    seconds: float
    versions: Mapping[str, str]


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
    ours = "beyond the paper"
    """A claim of our own, upheld."""
    unsupported = "not supported"
    """A claim of our own that the figures do not bear out."""


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
    version: int = 1
    """Raise it when the cell's code changes its results: older lines are then left alone and computed anew."""

    def cells(self, preset: Preset) -> list[Cell]:
        return [Cell(self.id, self.version, arguments) for arguments in self.grid[preset]]


def grid(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Every combination of the axes' values, the last axis running fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
