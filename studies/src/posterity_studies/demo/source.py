"""Task 0: learn the prior once, and keep it as a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import nn

import posterity as pt
from posterity.blocks import find_blocks, write_blocks
from posterity.lenet import lenet5
from posterity_studies.shared.datasets import per_class
from posterity_studies.shared.datasets.digits import mnist_sample


def learn_prior(path: Path, images: int, epochs: int, progress: bool = True) -> None:
    """Train LeNet-5 on `images` of each MNIST digit; its posterior, one Kronecker pair a layer, is the learned prior.

    A file that is there already is kept.
    """
    if path.exists():
        return
    generator = torch.Generator().manual_seed(0)
    fit = pt.learn(
        fresh(seed=0),
        per_class(mnist_sample(), images, generator),
        training={"lr": 2e-3, "epochs": epochs, "batch_size": 128},
        generator=generator,
        progress=progress,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    fit.posterior.compress().save(path)


def fresh(seed: int) -> nn.Module:
    """A network that has seen nothing."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return lenet5()


def at_mean(prior: pt.Gaussian) -> nn.Module:
    """A network with the prior's mean for weights."""
    model = lenet5()
    model.load_state_dict(write_blocks(find_blocks(model), prior.mean))
    return model


def fingerprint(path: Path) -> str:
    """Of a prior's file: results belong to the prior they were made with."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
