"""Regression sets of the UCI repository with the 20 test splits that the literature uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from posterity.errors import NoDataSet
from posterity.idx import folder_of
from posterity_studies.shared.datasets.packed import read

UCI = ("concrete", "energy", "yacht")


@dataclass(frozen=True)
class Regression:
    """One split, inputs and targets standardised by the training part; `scale` takes an error back to the target's units."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    scale: float


def uci(name: str, split: int, root: Path | None = None) -> Regression:
    """A split of a set, in float32: targets have one column."""
    arrays = read(folder_of("uci", root) / f"{name}.npz", ("data", "features", "target", "test_index"))
    if not 0 <= split < len(arrays["test_index"]):
        raise NoDataSet(f"{name} has splits 0 to {len(arrays['test_index']) - 1}, not {split}.")
    x, y = arrays["data"][:, arrays["features"]], arrays["data"][:, [int(arrays["target"])]]
    tested = np.zeros(len(x), dtype=bool)
    tested[arrays["test_index"][split]] = True
    centre, spread = x[~tested].mean(0), x[~tested].std(0)
    spread[spread == 0] = 1
    middle, scale = y[~tested].mean(), y[~tested].std()
    x, y = (x - centre) / spread, (y - middle) / scale
    parts = [
        (torch.tensor(x[p], dtype=torch.float32), torch.tensor(y[p], dtype=torch.float32)) for p in (~tested, tested)
    ]
    return Regression(parts[0], parts[1], float(scale))
