"""A column's new head, fitted before anything else of the column moves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posterity.blocks import evaluating
from posterity.curvature import Likelihood
from posterity.data import Data
from posterity.data.batches import batches
from posterity.gaussian import Gaussian
from posterity.laplace import PriorPenalty
from posterity.laplace.polish import polish

STEPS = 100
"""Of L-BFGS: the problem is convex, and features are computed once."""


def fit_head(
    network: nn.Module, path: str, data: Data, likelihood: Likelihood, prior: Gaussian | None, batch_size: int = 256
) -> None:
    """Bring the head at `path` to the mode of its own posterior, all other weights as they are.

    A column starts at the weights of a source, and its head at random ones. Trained together, the head's first gradients change
    the source's weights before the head has learned anything; steps that are short enough not to would never train the head.
    """
    head = network.get_submodule(path)
    features, targets = _features(network, head, data, batch_size)
    parameters = [p for p in head.parameters() if p.requires_grad]
    own = None if prior is None or path not in prior.mean else PriorPenalty(prior.restricted([path]), network)
    checked = likelihood.check(head(features).detach(), targets)[1]

    def objective() -> float:
        for p in parameters:
            p.grad = None
        loss = likelihood.nll(head(features), checked) + (0.0 if own is None else own())
        loss.backward()
        return float(loss.detach())

    with torch.enable_grad():
        polish(parameters, objective, STEPS)
    for p in parameters:
        p.grad = None


@torch.no_grad()
def _features(network: nn.Module, head: nn.Module, data: Data, batch_size: int) -> tuple[Tensor, Tensor]:
    """What the head is given, with earlier columns at their means."""
    given: list[Tensor] = []
    targets: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    device = next(network.parameters()).device
    try:
        with evaluating(network):
            for batch in batches(data, batch_size):
                batch = batch.to(device)
                batch.outputs(network)
                targets.append(batch.targets)
    finally:
        handle.remove()
    return torch.cat(given), torch.cat(targets)
