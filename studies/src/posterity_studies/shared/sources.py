"""Priors learned on a source data set: made once, then read from `runs/priors/`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from posterity.algebra import Kronecker, KroneckerSum
from posterity.gaussian import Gaussian, load
from posterity.laplace import isotropic, update
from posterity.workflow import learn
from posterity_studies.shared.datasets import Images, images
from posterity_studies.shared.datasets.digits import digits
from posterity_studies.shared.networks import fresh

FOLDER = Path("runs/priors")


@cache
def data_set(name: str) -> Images:
    """A set from the data root, or scikit-learn's digits made to look as MNIST does."""
    if name != "digits":
        return images(name)
    x, y = digits()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1200], order[1200:]
    return Images((x[train], y[train]), (x[test], y[test]))


@cache
def source_prior(source: str, examples: int, precision: float) -> Gaussian:
    """The posterior of LeNet-5 on the source: precision γ·identity plus the curvature summed over the examples."""
    path = FOLDER / f"{source}-{examples}-{precision:g}.safetensors"
    if path.exists():
        return load(path)
    x, y = data_set(source).train
    generator = torch.Generator().manual_seed(0)
    kept = torch.randperm(len(x), generator=generator)[:examples]
    model = fresh(0)
    start = isotropic(model, precision)
    fit = learn(model, (x[kept], y[kept]), start, training={"epochs": 15}, generator=generator, progress=False)
    posterior = update(start, model, fit.curvature)
    path.parent.mkdir(parents=True, exist_ok=True)
    posterior.save(path)
    return posterior


def source_curvature(learned: Gaussian, block: str) -> Kronecker:
    """What the source data added to γ·identity."""
    matrix = learned.precision[block]
    assert isinstance(matrix, KroneckerSum)
    return next(term for term in matrix.terms if not term.is_scaled_identity)
