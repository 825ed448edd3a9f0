"""Frequentist projection: training objectives that are the bound itself, as a function of the mode."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posterity.pacbayes.bounds import catoni_best


class McAllester:
    """NLL/(N ln 2) + √((½(θ−θ₀)ᵀP(θ−θ₀)/τ + ln(2√N/δ)) / 2N), for `pt.train(..., objective=McAllester())`.

    The KL divergence of two Gaussians of equal covariance is the quadratic alone; the covariance is chosen afterwards.
    """

    def __init__(self, delta: float = 0.1, temperature: float = 1.0) -> None:
        _check(delta, temperature)
        self.delta, self.temperature = delta, temperature

    def __call__(self, nll: Tensor, half_quadratic: Tensor, count: int) -> Tensor:
        cost = half_quadratic / self.temperature + math.log(2 * math.sqrt(count) / self.delta)
        return nll / math.log(2) + (cost / (2 * count)).sqrt()

    def __repr__(self) -> str:
        return f"McAllester(delta={self.delta}, temperature={self.temperature})"


class Catoni:
    """Catoni's bound at c · NLL/(N ln 2) + (½(θ−θ₀)ᵀP(θ−θ₀)/τ − ln δ)/N, with c re-optimised as training goes on.

    c is chosen again every `every` batches, from running means of loss and quadratic; given `c`, it stays. At one c the bound
    grows with that exponent, so that both have the same minimum; unlike exponents, bounds at different c can be compared, which
    restoring the best epoch's weights needs.
    """

    def __init__(self, delta: float = 0.1, temperature: float = 1.0, c: float | None = None, every: int = 50) -> None:
        _check(delta, temperature)
        if c is not None and not c > 0:
            raise ValueError(f"c is positive, not {c}")
        if every < 1:
            raise ValueError(f"c is chosen every so many batches, at least 1, not {every}")
        self.delta, self.temperature, self.every = delta, temperature, every
        self.fixed, self.c = c is not None, c if c is not None else 1.0
        self.calls, self.risk, self.kl = 0, math.nan, math.nan

    def __call__(self, nll: Tensor, half_quadratic: Tensor, count: int) -> Tensor:
        risk, kl = nll / math.log(2), half_quadratic / self.temperature
        # Validation and training share the objective; only passes that will have a gradient move c.
        if torch.is_grad_enabled() and not self.fixed:
            self._follow(float(risk.detach()), float(kl.detach()), count)
        exponent = self.c * risk + (kl - math.log(self.delta)) / count
        bound = -torch.expm1(-exponent) / -math.expm1(-self.c)
        # The value of the bound with the slope of its exponent, which does not vanish where the bound is near one.
        slope = exponent / self.c
        return slope + (bound - slope).detach()

    def _follow(self, risk: float, kl: float, count: int) -> None:
        if self.calls == 0:
            self.risk, self.kl = risk, kl
        self.risk += 0.05 * (risk - self.risk)
        self.kl += 0.05 * (kl - self.kl)
        if self.calls % self.every == 0 and math.isfinite(self.risk + self.kl):
            # A network that has learned nothing yet has a loss above one, for which any c is as good: not this one.
            _, self.c = catoni_best(min(max(0.0, self.risk), 0.9), max(0.0, self.kl), count, self.delta)
        self.calls += 1

    def __repr__(self) -> str:
        return f"Catoni(delta={self.delta}, temperature={self.temperature}, c={self.c:.4g})"


def _check(delta: float, temperature: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta lies between 0 and 1, not {delta}")
    if not temperature > 0:
        raise ValueError(f"a temperature is positive, not {temperature}")
