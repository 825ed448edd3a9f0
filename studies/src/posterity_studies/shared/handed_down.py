"""A prior that LeNet-5 learned on MNIST, signed with the images it has seen, at any strength."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from torch import nn

from posterity.algebra import scaled_identity
from posterity.blocks import find_blocks, write_blocks
from posterity.gaussian import Gaussian, load
from posterity.laplace import Scales, isotropic
from posterity.workflow import learn
from posterity_studies.shared.datasets import images
from posterity_studies.shared.networks import fresh
from posterity_studies.shared.sources import source_curvature

STRENGTHS = [(a, g) for a in (0.001, 0.01, 0.1, 1.0) for g in (30.0, 100.0, 300.0, 1000.0)]
"""(share of the source's curvature, γ) of the priors declared for a target without a split: the bound pays for all of them."""

SMALL = 1e-5
"""γ while learning on the source: the network is all but free there."""


@cache
def mnist_prior(examples: int, seed: int = 0) -> Gaussian:
    """LeNet-5's posterior on MNIST: γ·identity plus curvature, learned once, then read from `runs/priors/`."""
    path = Path("runs/priors") / f"handed-down-mnist-{examples}-{seed}.safetensors"
    if path.exists():
        return load(path)
    x, y = images("mnist").train
    generator = torch.Generator().manual_seed(seed)
    kept = torch.randperm(len(x), generator=generator)[:examples]
    model = fresh(seed)
    fit = learn(
        model,
        (x[kept], y[kept]),
        isotropic(model, SMALL),
        scales=Scales(),
        training={"epochs": 20},
        generator=generator,
        progress=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    fit.posterior.save(path)
    return fit.posterior


def at_strength(prior: Gaussian, share: float, gamma: float) -> Gaussian:
    """The same mean and past, with precision share · curvature + γ · identity."""
    precision = {}
    for name, matrix in prior.precision.items():
        pair = source_curvature(prior, name).to(dtype=torch.float64)
        precision[name] = scaled_identity(gamma, matrix.shape) + pair * share
    return replace(prior, precision=precision)


def start_at(model: nn.Module, prior: Gaussian) -> None:
    """The prior's mean as the network's weights."""
    model.load_state_dict(write_blocks(find_blocks(model), {name: mean.float() for name, mean in prior.mean.items()}))
