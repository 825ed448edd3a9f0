"""The paper's bounds for regression: conditional on s² and c that no data can check, with a closed form for linear models.

The sub-gamma bound (Alquier et al. 2016, Germain et al. 2016) holds *if* the loss is sub-gamma with the s² and c that are stated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def sub_gamma(risk: float, kl: float, n: int, delta: float, variance: float, scale: float, lam: float = 1.0) -> float:
    """risk + (KL + ln 1/δ)/(λn) + λs²/(2(1 − λc)): *conditional* on a loss that is sub-gamma with s² = `variance`, c = `scale`.

    λ must be fixed before the data is seen; the paper has λ = 1. Risks are of any real loss, such as mean nats.
    """
    if not (kl >= 0 and n >= 1 and 0 < delta < 1):
        raise ValueError(f"KL is non-negative, n at least 1 and delta in (0, 1), not {kl}, {n}, {delta}")
    if not (variance >= 0 and scale >= 0 and lam > 0 and lam * scale < 1):
        raise ValueError(
            f"s² and c are non-negative and λc is below 1, not s² {variance}, c {scale}, λ {lam}: there the bound says nothing."
        )
    return risk + (kl - math.log(delta)) / (lam * n) + lam * variance / (2 * (1 - lam * scale))


@dataclass(frozen=True)
class LinearModel:
    """y = θᵀφ + noise, with features φ ~ N(0, σ_x²I), a prior θ ~ N(0, σ_π²I) and noise of variance σ²: all assumed."""

    noise: float
    prior_variance: float
    feature_variance: float
    weight_norm: float
    """‖θ̂‖ of the true weights, or a bound on it."""

    def sub_gamma_constants(self, dimensions: int) -> tuple[float, float]:
        """(s², c) of the negative log-likelihood at λ = 1, by Germain et al."""
        c = self.feature_variance * self.prior_variance / self.noise
        s2 = (
            self.feature_variance * (self.prior_variance * dimensions + self.weight_norm**2) + self.noise * (1 - c)
        ) / self.noise
        return s2, c

    def posterior(
        self, features: Float[Tensor, "n d"], targets: Float[Tensor, " n"]
    ) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """Mean and precision A = ΦᵀΦ/σ² + I/σ_π², in float64."""
        phi, y = features.double(), targets.double()
        precision = phi.T @ phi / self.noise + torch.eye(phi.shape[1], dtype=torch.float64) / self.prior_variance
        return torch.linalg.solve(precision, phi.T @ y / self.noise), precision

    def bound(self, features: Float[Tensor, "n d"], targets: Float[Tensor, " n"], delta: float = 0.05) -> float:
        """The closed form: expected NLL of the posterior, KL and constants, with nothing sampled. Mean nats an example.

        KL + n · (expected NLL) is the negative log evidence: minimising the bound over posteriors is Bayes' rule.
        """
        phi, y = features.double(), targets.double()
        n, d = phi.shape
        mean, precision = self.posterior(phi, y)
        residual = (y - phi @ mean).square().sum() + (phi @ torch.linalg.solve(precision, phi.T)).trace()
        nll = 0.5 * float(residual / self.noise) / n + 0.5 * math.log(2 * math.pi * self.noise)
        inverse = torch.linalg.inv(precision)
        kl = 0.5 * float(
            (inverse.trace() + mean @ mean) / self.prior_variance
            - d
            + torch.linalg.slogdet(precision).logabsdet
            + d * math.log(self.prior_variance)
        )
        s2, c = self.sub_gamma_constants(d)
        return sub_gamma(nll, max(0.0, kl), n, delta, s2, c)
