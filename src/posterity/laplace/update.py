"""Bayes' rule for structured Gaussians: prior and curvature become the posterior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from posterity.algebra import Matrix
from posterity.blocks import find_blocks, read_blocks
from posterity.curvature import Curvature
from posterity.errors import BlockMismatch
from posterity.gaussian import Gaussian
from posterity.laplace.scales import Scales
from posterity.version import __version__


def update(
    prior: Gaussian, model: nn.Module | Mapping[str, Tensor], curvature: Curvature, scales: Scales | None = None
) -> Gaussian:
    """The Laplace posterior: mean at the model's weights, precision (β·curvature + α·prior)/τ, exactly.

    `model` is the trained network, or its blocks' matrices. The sum of two Kronecker pairs stays a sum (nothing is
    approximated, and `JointEigen` makes it cheap). A prior that is itself such a sum has to be one pair before a third term can
    come: it is joined by `prior.compress()`, and the posterior's card tells the relative error of that.
    """
    scales = scales or Scales()
    if not prior.is_compressed:
        prior = prior.compress()
    mean = _means(prior, model)
    precision: dict[str, Matrix] = {}
    for name in prior.blocks:
        if name not in curvature.blocks:
            raise BlockMismatch(
                f'the prior has a block "{name}" and the curvature has not (it has {list(curvature.blocks)}): '
                f'estimate it too, or drop the block with prior.without("{name}").'
            )
        alpha, beta, temperature = scales.of(name)
        old, new = prior.precision[name], curvature[name].to(dtype=torch.float64)
        precision[name] = (
            (old * (alpha / temperature) + new * (beta / temperature)) if beta else old * (alpha / temperature)
        )
    card = replace(
        prior.card,
        count=prior.card.count + curvature.count,
        likelihood=repr(curvature.likelihood),
        estimator=repr(curvature.estimator),
        scales={name: scales.of(name) for name in prior.blocks},
        versions={"posterity": __version__, "torch": str(torch.__version__)},
    )
    return Gaussian(mean, precision, card)


def _means(prior: Gaussian, model: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    if isinstance(model, nn.Module):
        matrices = read_blocks(model, find_blocks(model, lambda name, module: name in prior.mean))
    else:
        matrices = dict(model)
    prior._covers(matrices)
    return {name: matrices[name].detach() for name in prior.blocks}
