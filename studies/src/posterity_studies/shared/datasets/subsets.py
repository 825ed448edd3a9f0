"""A few examples of each class of a data set."""

from __future__ import annotations

import torch
from torch import Tensor


def per_class(data: tuple[Tensor, Tensor], n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """n examples of each class, drawn at random (all of a class that has fewer)."""
    x, y = data
    order = torch.randperm(len(y), generator=generator)
    kept = torch.cat([order[y[order] == c][:n] for c in y.unique()])
    return x[kept], y[kept]
