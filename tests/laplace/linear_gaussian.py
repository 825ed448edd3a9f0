"""Bayesian linear regression with one output, where everything is known in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posterity.curvature import GaussianNoise


@dataclass(frozen=True, eq=False)
class Regression:
    """y = w·x + b + noise of precision `noise`, with a prior N(mean, inverse(prior)) over (w, b)."""

    x: Tensor
    y: Tensor
    noise: float
    mean: Tensor
    prior: Tensor

    @property
    def likelihood(self) -> GaussianNoise:
        return GaussianNoise(self.noise)

    @property
    def design(self) -> Tensor:
        return torch.cat((self.x, torch.ones(len(self.x), 1, dtype=self.x.dtype)), 1)

    def posterior(self) -> tuple[Tensor, Tensor]:
        """Mean and precision by the textbook."""
        a = self.design
        precision = self.noise * a.T @ a + self.prior
        return torch.linalg.solve(precision, self.noise * a.T @ self.y[:, 0] + self.prior @ self.mean), precision

    def log_evidence(self) -> float:
        """ln p(y): a normal with the noise's and the weights' covariance."""
        a = self.design
        spread = torch.eye(len(a), dtype=a.dtype) / self.noise + a @ torch.linalg.solve(self.prior, a.T)
        return float(torch.distributions.MultivariateNormal(a @ self.mean, spread).log_prob(self.y[:, 0]))

    def part(self, which: slice) -> Regression:
        return Regression(self.x[which], self.y[which], self.noise, self.mean, self.prior)

    def network(self, weights: Tensor) -> nn.Linear:
        """A linear layer with these weights, the bias last."""
        layer = nn.Linear(self.x.shape[1], 1).double()
        with torch.no_grad():
            layer.weight.copy_(weights[None, :-1])
            layer.bias.copy_(weights[-1:])
        return layer


def regression(n: int = 40, features: int = 4, noise: float = 2.5, strength: float = 0.7, seed: int = 0) -> Regression:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=generator, dtype=torch.float64)
    truth = torch.randn(features, 1, generator=generator, dtype=torch.float64)
    y = x @ truth + 0.3 + noise**-0.5 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    size = features + 1
    zero = torch.zeros(size, dtype=torch.float64)
    return Regression(x, y, noise, zero, strength * torch.eye(size, dtype=torch.float64))


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-8) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol * float(expected.abs().max()))
