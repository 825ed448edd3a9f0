"""What a posterior would say of a training example that it had not seen, without being fitted again.

At the mode, with S the posterior covariance of an example's outputs, H and g the Hessian and gradient of its NLL,

    S₋ = S (I − H S)⁻¹        f₋ = f + S₋ g

is the downdate and one Newton step: exact for Gaussian noise, close for classes. Groups of examples go by blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.curvature import Categorical, GaussianNoise, Likelihood
from posterity.data.leave_out import STAYS
from posterity.errors import InconsistentPosterior
from posterity.kernel.latent import Latent, Link, centred, link, moderated, symmetric

ENTRIES = 1 << 20
"""Numbers of a temporary (8 MB in float64) beyond which calibrations are scored piece by piece."""


@dataclass(frozen=True)
class Calibration:
    """How wide the predictive is (τ, a multiple of the covariance) and how soft (T, which divides the logits)."""

    tau: float = 1.0
    temperature: float = 1.0


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Mean and covariance of each training example's outputs without that example (or without its group)."""

    mean: Float[Tensor, "n outputs"]
    covariance: Float[Tensor, "n outputs outputs"]

    def part(self, index: Int[Tensor, " m"]) -> LeaveOneOut:
        """The left-out predictions of some examples."""
        return LeaveOneOut(self.mean[index], self.covariance[index])

    def nll(self, likelihood: Likelihood, targets: Tensor, calibration: Calibration, kind: Link = "probit") -> float:
        """Mean NLL of the left-out examples, in nats."""
        return float(-self.log_probs(likelihood, targets, calibration, kind).mean())

    def log_probs(
        self, likelihood: Likelihood, targets: Tensor, calibration: Calibration, kind: Link = "probit"
    ) -> Float[Tensor, " n"]:
        """ln p(target) of each left-out example."""
        mean, covariance = self.mean, self.covariance
        tau, t = calibration.tau, calibration.temperature
        if isinstance(likelihood, GaussianNoise):
            mean, own, noise = likelihood.predicted(mean, tau * covariance.diagonal(dim1=-2, dim2=-1))
            targets, variance = targets.to(mean.dtype).view_as(mean), own + noise
            return -0.5 * ((targets - mean).square() / variance + (2 * torch.pi * variance).log()).sum(-1)
        return _log_likelihood(link(mean / t, tau * covariance / t**2, likelihood, kind), likelihood, targets)

    def nlls(
        self, likelihood: Likelihood, targets: Tensor, calibrations: Sequence[Calibration], kind: Link = "probit"
    ) -> list[float]:
        """`nll` for each of many calibrations. The usual link needs variances alone: those are scored together."""
        if kind != "probit" or isinstance(likelihood, GaussianNoise):
            return [self.nll(likelihood, targets, calibration, kind) for calibration in calibrations]
        mean, covariance = self.mean, self.covariance
        if isinstance(likelihood, Categorical):
            mean, covariance = centred(mean, covariance)
        variance = covariance.diagonal(dim1=-2, dim2=-1).to(mean.dtype)
        numbers = torch.tensor([[c.tau, c.temperature] for c in calibrations], dtype=torch.float64).to(mean)
        found: list[float] = []
        for some in numbers.split(max(1, ENTRIES // max(1, mean.numel()))):
            tau, t = (column[:, None, None] for column in some.mT)
            probs = moderated(mean / t, tau * variance / t**2, likelihood)
            found += (-_log_likelihood(probs, likelihood, targets).mean(-1)).tolist()
        return found


def _log_likelihood(
    probs: Float[Tensor, "*batch n outputs"], likelihood: Likelihood, targets: Tensor
) -> Float[Tensor, "*batch n"]:
    tiny = torch.finfo(probs.dtype).tiny
    if isinstance(likelihood, Categorical):
        return probs[..., torch.arange(len(targets), device=targets.device), targets].clamp_min(tiny).log()
    yes = targets.to(probs.dtype).view(probs.shape[-2:])
    return (yes * probs.clamp_min(tiny).log() + (1 - yes) * (1 - probs).clamp_min(tiny).log()).sum(-1)


def leave_out(
    latent: Latent, likelihood: Likelihood, targets: Tensor, groups: Int[Tensor, " n"] | None = None
) -> LeaveOneOut:
    """Every example predicted without itself, or without its group, from one posterior; with itself in a group of −1.

    Raises:
        Inconsistent: where the posterior is not consistent with its own data (an eigenvalue of HS at or above 1).
    """
    n, c = latent.outputs.shape
    gradient, root = likelihood.residual(latent.outputs, targets), likelihood.fisher_root(latent.outputs)
    mean, covariance = latent.outputs.clone(), root.new_zeros(n, c, c)
    for index in _by_size(n, groups):
        size = index.shape[1]
        s = latent.blocks(index)
        b = torch.stack([torch.block_diag(*root[i]) for i in index]) if size > 1 else root[index[:, 0]]
        downdated = downdate(s, b)
        moved = (downdated @ gradient[index].flatten(1)[..., None]).squeeze(-1)
        mean[index] = latent.outputs[index] + moved.view(len(index), size, c)
        for k in range(size):
            part = slice(k * c, (k + 1) * c)
            covariance[index[:, k]] = downdated[:, part, part]
    return LeaveOneOut(mean, covariance)


def downdate(
    covariance: Float[Tensor, "n size size"], root: Float[Tensor, "n size rank"]
) -> Float[Tensor, "n size size"]:
    """S(I − HS)⁻¹ with H = BBᵀ, as S + SB(I − BᵀSB)⁻¹BᵀS: symmetric, and definite only where BᵀSB < 1."""
    inner = root.mT @ covariance @ root
    largest = float(torch.linalg.eigvalsh(inner).max())
    if not largest < 1:
        raise InconsistentPosterior(
            f"the posterior is too wide for its own data: the largest eigenvalue of HS at a training example is {largest:.3g}, "
            "and a posterior that has seen the example keeps it below 1. Leave-one-out has no meaning here: use the posterior "
            "in function space, or curvature with exact values."
        )
    eye = torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    half = covariance @ root
    return symmetric(covariance + half @ torch.linalg.solve(eye - inner, half.mT))


def _by_size(n: int, groups: Int[Tensor, " n"] | None) -> list[Int[Tensor, "groups size"]]:
    """Groups of equal size together, so that each lot is one batched solve."""
    if groups is None:
        return [torch.arange(n)[:, None]]
    found: dict[int, list[Tensor]] = {}
    for label in groups[groups != STAYS].unique():
        members = (groups == label).nonzero().flatten()
        found.setdefault(len(members), []).append(members)
    return [torch.stack(members) for members in found.values()]


def without_themselves(seen: LeaveOneOut, likelihood: Likelihood, targets: Tensor) -> LeaveOneOut:
    """From outputs that have seen an example to those that have not: one downdate and one Newton step.

    Raises:
        Inconsistent: where the posterior is wider at its own examples than one that has seen them can be.
    """
    covariance = downdate(seen.covariance, likelihood.fisher_root(seen.mean))
    gradient = likelihood.residual(seen.mean, targets)
    return LeaveOneOut(seen.mean + (covariance @ gradient[..., None]).squeeze(-1), covariance)


def left_out_some(latent: Latent, likelihood: Likelihood, targets: Tensor, some: Int[Tensor, " m"]) -> LeaveOneOut:
    """Leave-one-out for some of the training examples alone: each costs as much as a prediction."""
    seen = LeaveOneOut(latent.outputs[some], latent.blocks(some[:, None]))
    return without_themselves(seen, likelihood, targets[some])
