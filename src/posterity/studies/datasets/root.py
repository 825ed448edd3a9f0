"""Where data sets are: a folder for each under the data root, `POSTERITY_DATA`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from posterity.errors import NoDataSet


@dataclass(frozen=True)
class Images:
    """A data set in memory: images (n, channels, height, width) in [0, 1], and labels."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def data_root() -> Path | None:
    """Where data sets are, if anywhere."""
    root = os.environ.get("POSTERITY_DATA")
    return Path(root) if root and Path(root).is_dir() else None


def folder_of(name: str, root: Path | None = None) -> Path:
    """The set's folder, or how to get one."""
    root = root or data_root()
    if root is None:
        raise NoDataSet(f'"{name}" is read from the data root: set POSTERITY_DATA to a folder that holds {name}/.')
    if not (root / name).is_dir():
        raise NoDataSet(f"there is no {name}/ in {root}: `posterity study data {name}` says where it comes from.")
    return root / name


def per_class(data: tuple[Tensor, Tensor], n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """n examples of each class, drawn at random (all of a class that has fewer)."""
    x, y = data
    order = torch.randperm(len(y), generator=generator)
    kept = torch.cat([order[y[order] == c][:n] for c in y.unique()])
    return x[kept], y[kept]
