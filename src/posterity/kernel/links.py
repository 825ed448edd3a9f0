"""From normal outputs to probabilities: E softmax(f) for f ~ N(mean, covariance), in closed form or by draws."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import Bernoulli, Categorical, Likelihood
from posterity.errors import BadData

Link = Literal["pairwise", "probit", "bridge", "sampled"]
LINKS: tuple[Link, ...] = ("pairwise", "probit", "bridge", "sampled")
PROBIT = math.pi / 8


def link(
    mean: Float[Tensor, "n outputs"],
    covariance: Float[Tensor, "n outputs outputs"],
    likelihood: Likelihood,
    kind: Link = "probit",
    *,
    samples: int = 1000,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "n outputs"]:
    """Probabilities of classes, or of each yes-or-no target, averaged over normal outputs.

    "probit" moderates the centred logits by their own variances (MacKay); "pairwise" moderates every difference of two
    logits by its variance, which is right for two classes; "bridge" matches a Dirichlet (Laplace bridge); "sampled" averages
    over draws. A shift common to all logits changes nothing in any of them, as in the softmax itself.
    """
    if kind not in LINKS:
        raise ValueError(f'link is one of {", ".join(LINKS)}, not "{kind}"')
    match likelihood:
        case Bernoulli():
            if kind == "sampled":
                return normal_draws(mean, covariance, samples, generator).sigmoid().mean(0)
            variance = covariance.diagonal(dim1=-2, dim2=-1).to(mean.dtype).clamp_min(0)
            return (mean / (1 + PROBIT * variance).sqrt()).sigmoid()
        case Categorical():
            mean, covariance = centred(mean, covariance)
            if kind == "sampled":
                return normal_draws(mean, covariance, samples, generator).softmax(-1).mean(0)
            return {"probit": _probit, "pairwise": _pairwise, "bridge": _bridge}[kind](mean, covariance.to(mean.dtype))
    raise BadData(f"{likelihood} has no probabilities to average: a regression predicts numbers.")


def centred(
    mean: Float[Tensor, "n classes"], covariance: Float[Tensor, "n classes classes"]
) -> tuple[Float[Tensor, "n classes"], Float[Tensor, "n classes classes"]]:
    """Both without the part that is common to all classes, which the softmax cannot see."""
    rows = covariance - covariance.mean(-1, keepdim=True)
    return mean - mean.mean(-1, keepdim=True), rows - rows.mean(-2, keepdim=True)


def spread(covariance: Float[Tensor, "n outputs outputs"], likelihood: Likelihood) -> Float[Tensor, "n ..."]:
    """How much outputs vary: the mean variance of an example's centred logits, or the variance of each yes-or-no output."""
    if isinstance(likelihood, Categorical):
        _, covariance = centred(covariance[..., 0], covariance)
        return covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(0)
    return covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0)


def _probit(mean: Tensor, covariance: Tensor) -> Tensor:
    variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    return (mean / (1 + PROBIT * variance).sqrt()).softmax(-1)


def _pairwise(mean: Tensor, covariance: Tensor) -> Tensor:
    """p_c ∝ 1 / Σ_k exp(−(f_c − f_k)/√(1 + π/8 Var(f_c − f_k)))."""
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    between = (variance[..., :, None] + variance[..., None, :] - 2 * covariance).clamp_min(0)
    gap = (mean[..., :, None] - mean[..., None, :]) / (1 + PROBIT * between).sqrt()
    return (-(-gap).logsumexp(-1)).softmax(-1)


def _bridge(mean: Tensor, covariance: Tensor) -> Tensor:
    """The Dirichlet whose logits have this mean and these variances (Hobbhahn et al. 2022)."""
    classes = mean.shape[-1]
    variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(mean.dtype).eps)
    spread = mean + (-mean).logsumexp(-1, keepdim=True) - 2 * math.log(classes)
    alpha = (1 - 2 / classes + spread.exp()) / variance
    return alpha / alpha.sum(-1, keepdim=True)


def normal_draws(
    mean: Float[Tensor, "n outputs"],
    covariance: Float[Tensor, "n outputs outputs"],
    samples: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "samples n outputs"]:
    """Draws from normals; a covariance of less than full rank is no trouble to its eigenvectors."""
    values, vectors = torch.linalg.eigh(covariance.double())
    root = vectors * values.clamp_min(0).sqrt()[..., None, :]
    where = mean.device if generator is None else generator.device
    z = torch.randn(samples, *mean.shape, 1, dtype=torch.float64, device=where, generator=generator).to(mean.device)
    return mean + (root @ z).squeeze(-1).to(mean.dtype)
