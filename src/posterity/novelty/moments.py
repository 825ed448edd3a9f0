"""Scores that need the predictor's outputs, or the features its head reads: the larger, the more unusual."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import Bernoulli, Categorical, Likelihood

NOISE = 0.1
"""Of the linear model whose variance is taken, relative to the mean squared length of features."""
CONSTANT = 0.3
"""Its constant feature, relative to the root of that."""


def entropy(probs: Float[Tensor, "*n classes"]) -> Float[Tensor, "*n"]:
    """The entropy of the predictive distribution, in nats."""
    return -torch.special.xlogy(probs, probs).sum(-1)


def energy(logits: Float[Tensor, "*n classes"]) -> Float[Tensor, "*n"]:
    """−ln Σ exp of the logits (Liu et al., 2020): large where no class has a large logit."""
    return -logits.logsumexp(-1)


def of_outputs(outputs: Float[Tensor, "n outputs"], likelihood: Likelihood) -> dict[str, Float[Tensor, "n"]]:
    """The scores of classes; independent labels are pairs of classes each. Numbers have none."""
    outputs = outputs.detach().double()
    if isinstance(likelihood, Categorical):
        return {"entropy": entropy(outputs.softmax(-1)), "energy": energy(outputs)}
    if isinstance(likelihood, Bernoulli):
        pairs = torch.stack((outputs, torch.zeros_like(outputs)), -1)
        return {"entropy": entropy(pairs.softmax(-1)).sum(-1), "energy": energy(pairs).sum(-1)}
    return {}


@dataclass(frozen=True, eq=False)
class RelativeVariance:
    """How much of its prior variance a Bayesian linear model of known rows has left at others: from 0 to 1.

    The prior variance grows with the row's size, and drops out.
    """

    white: Float[Tensor, "n inp"]
    """L⁻¹ times the known rows, with LLᵀ their kernel and the noise."""
    size: Float[Tensor, ""]

    @classmethod
    def of(cls, known: Float[Tensor, "n d"]) -> RelativeVariance:
        """Costs O(n² d + n³) once, and O(n d) for each row."""
        known = known.double()
        size = known.square().sum(1).mean().clamp_min(1e-30).sqrt()
        rows = torch.cat((known / size, known.new_full((len(known), 1), CONSTANT)), 1)
        noise = NOISE * torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
        root = torch.linalg.cholesky(rows @ rows.T + noise)
        return cls(torch.linalg.solve_triangular(root, rows, upper=False), size)

    def __call__(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m"]:
        if torch.compiler.is_compiling():
            return self._of(rows)
        found = [self._of(part) for part in rows.split(4096)]
        return torch.cat(found) if found else rows.new_empty(0).double()

    def _of(self, rows: Tensor) -> Tensor:
        scaled = torch.cat((rows.double() / self.size, self.white.new_full((rows.shape[0], 1), CONSTANT)), 1)
        return 1 - (self.white @ scaled.T).square().sum(0) / scaled.square().sum(1)
