"""Candidates become one predictor: each averaged over its temperature, then weighted, by examples that were left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.curvature import Likelihood
from posterity.kernel.left_out import Calibration, LeaveOneOut

GRID = tuple(-1.8 + 0.3 * i for i in range(17))
"""Logarithmic temperatures around a belief's centre."""
LEAST = 1e-3
"""Weights below this are dropped."""
ROUNDS = 200
SOFTNESS = tuple(0.05 * i for i in range(-30, 61))
"""Logarithms of a single temperature: from .2 to 20."""


@dataclass(frozen=True)
class Temperatures:
    """An average over temperatures: log Σ_k w_k softmax(logits / T_k + shift)."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    @staticmethod
    def by_left_out(
        logits: Float[Tensor, "n classes"],
        shift: Float[Tensor, " classes"],
        labels: Int[Tensor, " n"],
        centre: float,
        spread: float,
        wide: float,
    ) -> Temperatures:
        """Bayes' rule over a grid of temperatures: a log-normal belief (a share `wide` of it has spread 1.5), times the
        probability of the labels that were left out. Without any of them it is the belief."""
        belief = torch.tensor([_density(d, spread, wide) for d in GRID], dtype=torch.float64).log()
        values = [math.exp(centre + d) for d in GRID]
        if len(labels):
            belief = belief + torch.stack([log_scores(logits / t + shift, labels).sum() for t in values])
        return Temperatures(tuple(values), tuple(belief.softmax(0).tolist())).pruned()

    def pruned(self) -> Temperatures:
        kept = [(t, w) for t, w in zip(self.values, self.weights, strict=True) if w > LEAST]
        total = sum(w for _, w in kept)
        return Temperatures(tuple(t for t, _ in kept), tuple(w / total for _, w in kept))

    def __call__(
        self, logits: Float[Tensor, "n classes"], shift: Float[Tensor, " classes"]
    ) -> Float[Tensor, "n classes"]:
        return mixed(
            [(w, (logits / t + shift).log_softmax(-1)) for t, w in zip(self.values, self.weights, strict=True)]
        )


def _density(d: float, spread: float, wide: float) -> float:
    return (1 - wide) / spread * math.exp(-0.5 * (d / spread) ** 2) + wide / 1.5 * math.exp(-0.5 * (d / 1.5) ** 2)


def mixed(parts: Sequence[tuple[float, Float[Tensor, "n classes"]]]) -> Float[Tensor, "n classes"]:
    """The logarithm of a weighted average of probabilities, one part after another to save memory."""
    total: Tensor | None = None
    for weight, log_probs in parts:
        part = log_probs + math.log(weight)
        total = part if total is None else torch.logaddexp(total, part)
    assert total is not None
    return total


def log_scores(logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The log probability of each label."""
    return logits.gather(1, labels[:, None]).squeeze(1) - logits.logsumexp(-1)


def stacked(
    scores: Float[Tensor, "candidates n"],
    counts: Float[Tensor, " candidates"],
    each: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, " candidates"]:
    """Weights that maximise Σ_i each_i log Σ_k w_k exp(score_ki) + Σ_k count_k log w_k: by EM, concave, one optimum.

    `each` is how much an example counts (one, where None). Without examples these are the counts' own shares.
    """
    weights = counts / counts.sum()
    if scores.shape[1] == 0:
        return weights
    for _ in range(ROUNDS):
        shares = (scores + weights.log()[:, None]).softmax(0)
        new = (shares if each is None else shares * each).sum(1) + counts
        new = new / new.sum()
        arrived = bool((new - weights).abs().amax() < 1e-6)
        weights = new
        if arrived:
            break
    return weights


def temperature(
    outputs: Float[Tensor, "n outputs"],
    likelihood: Likelihood,
    targets: Tensor,
    each: Float[Tensor, " n"] | None = None,
    spread: float = 0.5,
) -> float:
    """The most probable temperature of outputs whose targets they have not seen: a log-normal belief around 1, times the
    probability of the targets."""
    certain = LeaveOneOut(outputs, outputs.new_zeros(*outputs.shape, outputs.shape[1]))
    count = float(len(outputs) if each is None else each.sum())

    def unlikely(log: float) -> float:
        log_probs = certain.log_probs(likelihood, targets, Calibration(0.0, math.exp(log)))
        nll = -log_probs.mean() if each is None else -(each * log_probs).sum() / each.sum()
        return count * float(nll) + 0.5 * (log / spread) ** 2

    return math.exp(min(SOFTNESS, key=unlikely))
