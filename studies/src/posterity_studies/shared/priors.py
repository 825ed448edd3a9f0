"""The three priors that the paper compares, and a network trained to the mode of its posterior."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from posterity.algebra import scaled_identity
from posterity.blocks import find_blocks, write_blocks
from posterity.gaussian import Gaussian
from posterity.laplace import isotropic, train
from posterity_studies.shared.networks import fresh, with_fast_pooling
from posterity_studies.shared.sources import source_curvature
from posterity_studies.shared.tasks import Pair

PRIORS = {"learned": "learned", "mean": "isotropic around the source weights", "zero": "isotropic at zero"}
COLOURS = {"learned": "#0072b2", "mean": "#d55e00", "zero": "#009e73"}
STEPS = 200
STRENGTHS = [(a, g) for a in (0.001, 0.01, 0.1, 1.0) for g in (30.0, 100.0, 300.0, 1000.0)]
"""(share of the source's curvature, γ) of the priors that certificates without a split declare in advance and pay for."""


def build_prior(kind: str, learned: Gaussian, weight: float, precision: float, seed: int = 0) -> Gaussian:
    """weight · (curvature on the source) + precision · identity, around the learned mean or around zero.

    The sum is kept as it is: both terms, nothing joined.
    """
    flat = isotropic(fresh(seed), precision, "zero" if kind == "zero" else learned.mean)
    if kind != "learned" or not weight:
        return flat
    total = {name: flat.precision[name] + source_curvature(learned, name) * weight for name in flat.blocks}
    return replace(flat, precision=total)


def at_strength(learned: Gaussian, share: float, gamma: float) -> Gaussian:
    """The learned prior with precision share · curvature + γ · identity, and with its past, which certificates ask for."""
    precision = {}
    for name, matrix in learned.precision.items():
        pair = source_curvature(learned, name).to(dtype=torch.float64)
        precision[name] = scaled_identity(gamma, matrix.shape) + pair * share
    return replace(learned, precision=precision)


def start(kind: str, learned: Gaussian, seed: int) -> nn.Sequential:
    """A network at the learned weights, or at random ones for the prior around zero."""
    model = fresh(seed)
    if kind != "zero":
        start_at(model, learned)
    return with_fast_pooling(model)


def start_at(model: nn.Module, prior: Gaussian) -> None:
    """The prior's mean as the network's weights."""
    model.load_state_dict(write_blocks(find_blocks(model), {name: mean.float() for name, mean in prior.mean.items()}))


def train_to_mode(
    model: nn.Module, data: Pair, prior: Gaussian | None, seed: int, steps: int = STEPS, **options: Any
) -> None:
    """Train for about this many steps of 256 images, without validation: with few images all are needed for training."""
    epochs = max(1, round(steps / math.ceil(len(data[0]) / 256)))
    settings: dict[str, Any] = {
        "validation": None,
        "epochs": epochs,
        "stop_after": epochs,
        "lr": 1e-3,
        "progress": False,
    }
    train(model, data, prior, start="model", generator=torch.Generator().manual_seed(seed), **(settings | options))
