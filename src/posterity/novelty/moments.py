"""Scores that a predictor computes from what it says of an input: the larger, the more unusual. Pure functions of tensors."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def entropy(probs: Float[Tensor, "n classes"]) -> Float[Tensor, "n"]:
    """Of the predictive distribution, in nats."""
    return -torch.special.xlogy(probs, probs).sum(-1)


def energy(logits: Float[Tensor, "n classes"]) -> Float[Tensor, "n"]:
    """−ln Σ exp of the logits (Liu et al., 2020): large where no class has a large logit."""
    return -logits.logsumexp(-1)


def relative_variance(posterior: Float[Tensor, "n *outputs"], prior: Float[Tensor, "n *outputs"]) -> Float[Tensor, "n"]:
    """How much of the prior's variance of the outputs the data has left, averaged over outputs: from 0 to 1 for the exact
    posterior, near 1 where the data says nothing. The prior's variance grows with the input's size, and drops out."""
    tiny = torch.finfo(prior.dtype).tiny
    return posterior.flatten(1).sum(1) / prior.flatten(1).sum(1).clamp_min(tiny)


def leverage(
    features: Float[Tensor, "n *positions d"], factor: Float[Tensor, "d d"], damping: float = 1e-3
) -> Float[Tensor, "n"]:
    """ln of aᵀ R⁻¹ a, averaged over positions: R is the second moment of a layer's inputs, as a Kronecker factor holds it.

    `damping` is relative to R's mean eigenvalue.
    """
    factor = factor.double()
    level = factor.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    root = torch.linalg.cholesky(
        factor + damping * level * torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
    )
    flat = features.double().reshape(-1, features.shape[-1])
    squared = torch.linalg.solve_triangular(root, flat.T, upper=False).square().sum(0)
    return squared.reshape(len(features), -1).mean(1).clamp_min(torch.finfo(torch.float64).tiny).log()
