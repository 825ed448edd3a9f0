"""Whether a posterior is consistent with the data it came from.

At a training example, with H the Hessian of its NLL and S the posterior covariance of its outputs, a posterior that has seen the
example has every eigenvalue of H^½ S H^½ below 1. Block-diagonal and Kronecker curvature do not guarantee it.
"""

from __future__ import annotations

import torch
from torch import nn

from posterity.blocks import Replica, evaluating
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.data.batches import batches
from posterity.errors import BadData
from posterity.gaussian import Gaussian
from posterity.predictive.linearised import output_moments


@torch.inference_mode(False)
@torch.no_grad()
def consistency(
    model: nn.Module,
    posterior: Gaussian,
    data: Data,
    likelihood: Likelihood | None = None,
    *,
    examples: int = 200,
    batch_size: int = 100,
) -> float:
    """The largest eigenvalue of H^½ S H^½ over training examples: below 1 for a posterior that has seen them.

    Args:
        model: the network.
        posterior: over its weights.
        data: what it was learned from.
        likelihood: what outputs mean; classes by default.
        examples: how many are looked at.
        batch_size: examples at a time.

    Returns:
        The eigenvalue. At or above 1, leave-one-out from this posterior has no meaning, and its predictive is too wide.

    Raises:
        BadData: if there is no example, or outputs are not one vector an example.

    Example:
        >>> pt.metrics.consistency(model, fit.posterior, data)
    """
    likelihood = likelihood or Categorical()
    largest, seen, network = 0.0, 0, Replica(model)
    with evaluating(model):
        for batch in batches(data, batch_size):
            mean, covariance = output_moments(network, posterior, batch.to(next(model.parameters()).device))
            if mean.ndim != 2:
                raise BadData(f"outputs of shape {tuple(mean.shape)}: one vector of outputs an example is needed.")
            root = likelihood.fisher_root(mean.double())
            largest = max(largest, float(torch.linalg.eigvalsh(root.mT @ covariance @ root).max()))
            seen += batch.count
            if seen >= examples:
                break
    if not seen:
        raise BadData("there is no example to look at.")
    return largest
