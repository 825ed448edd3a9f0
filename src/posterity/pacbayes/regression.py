"""Bounds for regression: conditional ones for unbounded losses, and a certificate for a clipped loss.

The sub-gamma bound (Alquier et al. 2016, Germain et al. 2016) holds *if* the loss is sub-gamma with the s² and c that the user
states: no data can check that. The clipped loss needs no such belief.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.curvature import GaussianNoise
from posterity.data import Data
from posterity.errors import BadTargets, NotFinite
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import Spending, klinv
from posterity.pacbayes.certify import divergence, rebuilt
from posterity.pacbayes.examples import Examples
from posterity.pacbayes.gibbs import Weighted, counted, drawn_outputs
from posterity.pacbayes.refusals import checked


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


@dataclass(frozen=True)
class ClippedCertificate:
    """A bound on the expected clipped squared error min(‖y − f‖², B) of networks drawn from the posterior."""

    bound: float
    clip: float
    confidence: float
    n: int
    replicates: int
    kl: float
    gibbs: float
    """Mean clipped loss of single draws."""
    data: str
    checks: tuple[str, ...]
    assumes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"E min(‖y − f‖², {self.clip:g}) ≤ {self.bound:.4g} at {100 * self.confidence:g} %   "
            f"(draws {self.gibbs:.4g}, KL {self.kl:,.1f} nats, n {self.n:,}, {self.replicates:,} replicates)\n"
            + "\n".join(f"assumes   {text}" for text in self.assumes)
        )


@torch.no_grad()
def certify_clipped(
    model: nn.Module,
    posterior: Gaussian,
    prior: Gaussian,
    data: Data,
    clip: float,
    confidence: float = 0.95,
    *,
    groups: Tensor | None = None,
    passes: int = 10,
    grid: int = 1,
    vouched: str | None = None,
    generator: torch.Generator | None = None,
) -> ClippedCertificate:
    """Certify the squared error, clipped at `clip` (fixed before the data was seen): klinv of the loss divided by it.

    klinv holds for any loss in [0, 1], not only for errors; with `groups`, for the mean loss of a group. No assumption on the
    noise is needed, and none on the tails: what lies beyond the clip counts as the clip.
    """
    if not (clip > 0 and math.isfinite(clip)):
        raise ValueError(f"the loss is clipped at a positive number, not {clip}")
    examples = Examples.of(data, 64, groups)
    found = checked(model, posterior, prior, examples, Spending(1 - confidence), grid, vouched, generator)
    posterior, prior = rebuilt(posterior), rebuilt(prior)
    kl, spending = sum(divergence(posterior, prior).values()), found.spending
    readings = [_clipped(model, posterior, r.pieces(), clip, passes, found.generator) for r in examples.readings()]
    bounds = []
    for mean, replicates in readings:
        upper = klinv(min(1.0, mean), math.log(1 / spending.draws) / replicates)
        bounds.append(klinv(upper, (kl + math.log(2 * math.sqrt(examples.n) / spending.bound)) / examples.n))
    worst = max(range(len(bounds)), key=lambda i: bounds[i])
    mean, replicates = readings[worst]
    return ClippedCertificate(
        clip * bounds[worst],
        clip,
        confidence,
        examples.n,
        replicates,
        kl,
        clip * mean,
        examples.fingerprint,
        (*found.notes, f"δ: {spending}"),
        examples.assumes,
    )


def _clipped(
    model: nn.Module,
    posterior: Gaussian,
    held: Weighted,
    clip: float,
    passes: int,
    generator: torch.Generator | None,
) -> tuple[float, int]:
    """The mean clipped loss of single draws as a share of the clip, and how many replicates it is of."""
    total, likelihood, per_example = 0.0, GaussianNoise(1.0), True
    for portion in drawn_outputs(
        model, posterior, held, passes=passes, batch_size=64, generator=generator, progress=False
    ):
        per_example = portion.per_example
        if not portion.targets.is_floating_point():
            raise BadTargets("a squared error needs targets in floating point: for classes there is `certify`.")
        outputs, targets = likelihood.check(portion.outputs, portion.targets)
        loss = (outputs - targets).double().reshape(len(targets), -1).square().sum(1)
        if not bool(torch.isfinite(outputs).all()):
            raise NotFinite("the network's outputs are NaN or infinite for some examples: they have no error.")
        total += portion.mean(loss.clamp_max(clip) / clip)
    return total, counted(held, passes, per_example)
