"""Priors learned on a source data set. Each is learned once per recipe and then read from the cache folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from posterity.algebra import Kronecker, KroneckerSum
from posterity.data.hashes import fingerprint
from posterity.gaussian import Gaussian, load
from posterity.idx import Images, images
from posterity.laplace import Scales, isotropic
from posterity_studies import folders
from posterity_studies.shared.datasets.digits import digits
from posterity_studies.shared.datasets.subsets import per_class
from posterity_studies.shared.learning import learn_as_published
from posterity_studies.shared.networks import fresh


@dataclass(frozen=True)
class Recipe:
    """All that decides what LeNet-5 learns on a source: results made with another recipe are other results."""

    source: str
    examples: int
    precision: float = 1.0
    """γ of the isotropic prior around zero that learning starts from."""
    by_class: bool = False
    """Whether `examples` counts images of each class."""
    epochs: int = 15
    lr: float = 5e-4
    batch_size: int = 256
    evidence: bool = False
    """Whether the isotropic prior's strength in the posterior is chosen by evidence; else it is γ."""
    one_pair: bool = False
    """Whether a layer's precision is replaced by the nearest single Kronecker pair; else the sum is kept."""
    seed: int = 0
    version: int = 1
    """Raise it when the code below, or the library's learning, comes to another prior."""

    @property
    def name(self) -> str:
        """Readable, and unlike that of any other recipe: the stem of the prior's file, and part of its cells' keys."""
        key = fingerprint([json.dumps(asdict(self), sort_keys=True)], digits=12)
        return f"{self.source}-{self.examples}-{key}"


Needs = Callable[[Any], Recipe | None]
"""From a cell's arguments to the recipe of the prior it uses; None where it uses none."""


@cache
def learned_prior(recipe: Recipe) -> Gaussian:
    """The posterior of LeNet-5 on the source: precision γ·identity plus the curvature summed over the examples."""
    return load(write_prior(recipe, folders.cache() / "priors"))


def write_prior(recipe: Recipe, folder: Path, progress: bool = False) -> Path:
    """The file of a recipe's prior. It is learned once, also where several processes ask for it at the same time."""
    path = folder / f"{recipe.name}.safetensors"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{recipe.name}.lock"):
            if not path.exists():
                _learn(recipe, progress).save(path)
    return path


def _learn(recipe: Recipe, progress: bool) -> Gaussian:
    x, y = data_set(recipe.source).train
    generator = torch.Generator().manual_seed(recipe.seed)
    if recipe.by_class:
        data = per_class((x, y), recipe.examples, generator)
    else:
        kept = torch.randperm(len(x), generator=generator)[: recipe.examples]
        data = x[kept], y[kept]
    model = fresh(recipe.seed)
    posterior = learn_as_published(
        model,
        data,
        isotropic(model, recipe.precision),
        None if recipe.evidence else Scales(),
        {"epochs": recipe.epochs, "lr": recipe.lr, "batch_size": recipe.batch_size},
        generator,
        progress,
    )
    return posterior.compress() if recipe.one_pair else posterior


@cache
def data_set(name: str) -> Images:
    """A set from the data root, or scikit-learn's digits made to look as MNIST does."""
    if name != "digits":
        return images(name)
    x, y = digits()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1200], order[1200:]
    return Images((x[train], y[train]), (x[test], y[test]))


def source_curvature(learned: Gaussian, block: str) -> Kronecker:
    """What the source data added to γ·identity."""
    matrix = learned.precision[block]
    assert isinstance(matrix, KroneckerSum)
    return next(term for term in matrix.terms if not term.is_scaled_identity)
