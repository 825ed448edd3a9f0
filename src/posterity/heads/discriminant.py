"""Linear discriminants: classes with one covariance, shrunk towards a multiple of the identity."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def discriminants(
    inputs: Float[Tensor, "n r"], targets: Float[Tensor, "n classes"], shrinkages: Sequence[float]
) -> Float[Tensor, "shrinkages rows classes"]:
    """Weights for inputs with a one appended, for every shrinkage.

    log p(class | z) = z S⁻¹ m − ½ m S⁻¹ m + const., S = (1 − λ) S_within + λ tr(S_within)/r. Class frequencies are added
    elsewhere. A class without an example has its mean at the origin. One Cholesky factor a shrinkage.
    """
    counts = targets.sum(0)
    means = (targets.mT @ inputs) / counts.clamp_min(1)[:, None]
    residuals = inputs - targets @ means
    within = residuals.mT @ residuals / max(1, len(inputs) - int((counts > 0).sum()))
    found = []
    for shrinkage in shrinkages:
        covariance = (1 - shrinkage) * within
        covariance.diagonal().add_(shrinkage * within.diagonal().mean() + torch.finfo(within.dtype).tiny)
        rows = torch.cholesky_solve(means.mT, torch.linalg.cholesky(covariance))
        found.append(torch.cat([rows, -0.5 * (rows * means.mT).sum(0, keepdim=True)]))
    return torch.stack(found)
