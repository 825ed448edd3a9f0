"""One fit of every kind of predictor, as tests of serving use them, and what another process says of the saved ones."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from outcomes import OUTCOMES, conv, network, points
from torch import Tensor, nn

import posterity as pt

KINDS = (
    "learn, prior, new head",
    "learn, prior, head kept",
    "learn, prior, convolutions",
    "learn, prior, regression",
    "learn, prior, one a class",
    "learn, classes",
    "learn, classes, trained as told",
    "learn, classes, pairwise",
    "learn, yes or no",
    "adapt, new head",
    "adapt, head kept",
    "adapt, variational",
    "posterior",
    "posterior, last layer",
    "posterior, last layer, regression",
    "posterior, last layer, groups",
)
"""Every predictor, kernel, latent, likelihood and link that a fit can have."""
X = points(1000, 8)[0]


@cache
def fit(kind: str) -> Any:
    """A fit of that kind, made once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OUTCOMES[kind](0)


def blank(kind: str) -> nn.Module:
    """A network of the same layers with other weights."""
    return conv(5) if "convolutions" in kind else network(5, 1 if "regression" in kind else 3)


def said(found: pt.Prediction) -> dict[str, Tensor]:
    """All tensors of a prediction."""
    return {name: value for name, value in vars(found).items() if isinstance(value, Tensor)}


def path(folder: Path, kind: str) -> Path:
    return folder / f"{kind.replace(', ', '-').replace(' ', '_')}.fit"


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    torch.save({kind: said(pt.load(path(folder, kind), blank(kind)).predict(X)) for kind in KINDS}, folder / "said.pt")
