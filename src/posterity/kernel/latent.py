"""Normal outputs: the posterior around the most probable ones of a linearised network, and what probabilities they mean.

Two forms, by the kernel: one that couples all outputs (side n·C), and one that is the same for every output (C matrices of
side n). `mode` finds the most probable outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.curvature import Bernoulli, Categorical, Likelihood
from posterity.errors import BadData

Link = Literal["pairwise", "probit", "bridge", "sampled"]
LINKS: tuple[Link, ...] = ("pairwise", "probit", "bridge", "sampled")
PROBIT = math.pi / 8


@dataclass(frozen=True, eq=False)
class Latent(ABC):
    """A Laplace approximation over the outputs of the training examples."""

    gram: Tensor
    start: Float[Tensor, "n outputs"]
    """Outputs at the prior's mean."""
    weights: Float[Tensor, "n outputs"]
    """w with f = start + K w; at the mode this is minus the gradient of the NLL by the outputs."""
    outputs: Float[Tensor, "n outputs"]
    nll: float
    log_det: float
    """log det(I + KH), H the Hessian of the NLL."""

    @property
    def quadratic(self) -> float:
        """wᵀKw: the squared distance of the weights from the prior's mean, in the prior's metric."""
        return float((self.weights * (self.outputs - self.start)).sum())

    @property
    def log_evidence(self) -> float:
        """ln p(data) by Laplace, of the linearised model. Exact for Gaussian noise."""
        return -self.nll - 0.5 * self.quadratic - 0.5 * self.log_det

    @abstractmethod
    def mean(self, cross: Tensor) -> Float[Tensor, "m outputs"]:
        """What the posterior adds to the outputs at new inputs, from their kernel with the training examples."""

    @abstractmethod
    def covariance(self, cross: Tensor, prior: Tensor) -> Float[Tensor, "m outputs outputs"]:
        """The posterior covariance at new inputs, from their kernel with the training examples and with themselves."""

    @abstractmethod
    def blocks(self, groups: Int[Tensor, "groups size"]) -> Float[Tensor, "groups side side"]:
        """The posterior covariance of the outputs of groups of training examples, all of one size."""


@dataclass(frozen=True, eq=False)
class CoupledLatent(Latent):
    """The posterior of outputs under a kernel K over all n·C of them: with H = BBᵀ and I + BᵀKB = LLᵀ everything follows."""

    root: Float[Tensor, "n outputs rank"]
    """B: of classes it has one column fewer than outputs."""
    lower: Float[Tensor, "less less"]

    def mean(self, cross: Float[Tensor, "n outputs m outputs"]) -> Float[Tensor, "m outputs"]:
        return torch.einsum("ncmd,nc->md", cross, self.weights)

    def _reduced(self, cross: Float[Tensor, "side columns"]) -> Float[Tensor, "less columns"]:
        """A = L⁻¹BᵀK: the posterior covariance is the prior's minus AᵀA."""
        n, c, rank = self.root.shape
        turned = (self.root.mT @ cross.view(n, c, -1)).reshape(n * rank, -1)
        return torch.linalg.solve_triangular(self.lower, turned, upper=False)

    def covariance(
        self, cross: Float[Tensor, "n outputs m outputs"], prior: Float[Tensor, "m outputs outputs"]
    ) -> Float[Tensor, "m outputs outputs"]:
        n, c, m, _ = cross.shape
        reduced = self._reduced(cross.reshape(n * c, m * c)).view(-1, m, c).transpose(0, 1)
        return symmetric(prior - reduced.mT @ reduced)

    def blocks(self, groups: Int[Tensor, "groups size"]) -> Float[Tensor, "groups side side"]:
        n, c = self.outputs.shape
        reduced = self._reduced(self.gram).view(-1, n, c)
        columns = reduced[:, groups].flatten(2).transpose(0, 1)
        entries = (groups[:, :, None] * c + torch.arange(c, device=groups.device)).flatten(1)
        return symmetric(self.gram[entries[:, :, None], entries[:, None, :]] - columns.mT @ columns)


@dataclass(frozen=True, eq=False)
class SharedLatent(Latent):
    """The posterior of outputs under one kernel k (n × n) for all outputs, uncoupled: O(C n³) instead of O(C³n³).

    E_c = D_c^½ (I + D_c^½ k D_c^½)⁻¹ D_c^½, D the diagonal of H; the softmax couples outputs by M = Σ_c E_c.
    """

    inner: Float[Tensor, "outputs n n"]
    coupling: Float[Tensor, "n n"] | None
    """The Cholesky factor of M, where the likelihood couples outputs."""

    def mean(self, cross: Float[Tensor, "n m"]) -> Float[Tensor, "m outputs"]:
        return cross.mT @ self.weights

    def covariance(self, cross: Float[Tensor, "n m"], prior: Float[Tensor, " m"]) -> Float[Tensor, "m outputs outputs"]:
        pulled = self.inner @ cross  # outputs n m
        own = torch.diag_embed(prior[:, None] - (cross * pulled).sum(1).mT)
        if self.coupling is None:
            return own
        common = torch.linalg.solve_triangular(self.coupling, pulled, upper=False).permute(2, 0, 1)
        return symmetric(own + common @ common.mT)

    def blocks(self, groups: Int[Tensor, "groups size"]) -> Float[Tensor, "groups side side"]:
        count, size = groups.shape
        c = self.outputs.shape[1]
        cross = self.gram[:, groups]  # n groups size
        pulled = torch.einsum("cij,jgs->cigs", self.inner, cross)
        prior = self.gram[groups[:, :, None], groups[:, None, :]]
        own = prior - torch.einsum("ngs,cngt->cgst", cross, pulled)  # outputs groups size size
        total = torch.diag_embed(own.movedim(0, -1))  # groups size size outputs outputs
        if self.coupling is not None:
            flat = torch.linalg.solve_triangular(self.coupling, pulled.flatten(2), upper=False)
            flat = flat.view(c, -1, count, size).permute(2, 3, 0, 1)  # groups size outputs n
            total = total + torch.einsum("gscn,gtdn->gstcd", flat, flat)
        return symmetric(total.transpose(2, 3).reshape(count, size * c, size * c))


def symmetric(x: Tensor) -> Tensor:
    return (x + x.mT) / 2


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
            return moderated(mean, covariance.diagonal(dim1=-2, dim2=-1).to(mean.dtype), likelihood)
        case Categorical():
            if kind == "probit":
                # The diagonal of the centred covariance, without the rest of it.
                rows = covariance.mean(-1)
                variance = covariance.diagonal(dim1=-2, dim2=-1).sub(rows, alpha=2) + rows.mean(-1, keepdim=True)
                return moderated(mean - mean.mean(-1, keepdim=True), variance.to(mean.dtype), likelihood)
            mean, covariance = centred(mean, covariance)
            if kind == "sampled":
                return normal_draws(mean, covariance, samples, generator).softmax(-1).mean(0)
            return {"pairwise": _pairwise, "bridge": _bridge}[kind](mean, covariance.to(mean.dtype))
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


def moderated(
    mean: Float[Tensor, "*batch outputs"], variance: Float[Tensor, "*batch outputs"], likelihood: Likelihood
) -> Float[Tensor, "*batch outputs"]:
    """The "probit" link: logits (of classes: centred ones) moderated by their own variances."""
    logits = mean / (1 + PROBIT * variance.clamp_min(0)).sqrt()
    if not isinstance(likelihood, Categorical):
        return logits.sigmoid()
    # Examples side by side in memory: they are many, classes are few, and a processor takes several at once.
    return logits.mT.contiguous().softmax(-2).mT


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
