"""Variational inference over outputs: monotone, below the evidence, above Laplace where that is poor."""

from __future__ import annotations

import math

import pytest
import torch

from posterity.curvature import Bernoulli, Categorical, GaussianNoise
from posterity.kernel.mode import Observations, coupled_mode
from posterity.kernel.variational import VariationalGaussian, fit_variational


def kernel(side: int, seed: int = 0, scale: float = 4.0) -> torch.Tensor:
    x = torch.randn(side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return scale * (x @ x.T / side + 0.1 * torch.eye(side, dtype=torch.float64))


def evidence(gram, likelihood, targets, start, n: int, c: int) -> float:
    """ln E p(y | f) over f ~ N(start, K) by a product rule of 40 Gauss–Hermite nodes in every dimension."""
    nodes, weights = (torch.as_tensor(v) for v in _hermite(40))
    grid = torch.cartesian_prod(*[nodes] * (n * c)).view(-1, n * c)
    log_w = torch.cartesian_prod(*[weights.log()] * (n * c)).view(-1, n * c).sum(1)
    f = start.flatten() + grid @ torch.linalg.cholesky(gram).T
    log_p = torch.stack([-likelihood.nll(one.view(n, c), targets) for one in f])
    return float((log_w + log_p).logsumexp(0))


def _hermite(n: int):
    """Nodes and weights for the standard normal, from the recurrence's tridiagonal matrix."""
    off = torch.arange(1, n, dtype=torch.float64).sqrt()
    values, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return values, vectors[0].square()


@pytest.mark.parametrize("scale", [1.0, 8.0, 40.0])
def test_the_elbo_is_below_the_evidence_by_quadrature_and_rises_with_every_step(scale):
    gram, start = kernel(2, 1, scale), torch.tensor([[0.3], [-0.2]], dtype=torch.float64)
    targets = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    found = fit_variational(gram, Observations(start, Bernoulli(), targets), VariationalGaussian(draws=2048))
    truth = evidence(gram, Bernoulli(), targets, start, 2, 1)
    assert truth - 0.15 < found.elbo < truth
    assert all(a < b for a, b in zip(found.history, found.history[1:], strict=False))
    assert found.elbo == found.history[-1] > found.history[0]


def test_the_elbo_of_classes_is_below_the_evidence_by_quadrature():
    # Only the difference of two logits counts: a normal with variance aᵀKa.
    gram, start = kernel(4, 3, 10.0), torch.zeros(2, 2, dtype=torch.float64)
    targets = torch.tensor([0, 1])
    found = fit_variational(gram, Observations(start, Categorical(), targets), VariationalGaussian(draws=4096))
    a = torch.tensor([[1.0, -1, 0, 0], [0, 0, 1, -1]], dtype=torch.float64)
    yes = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    truth = evidence(a @ gram @ a.T, Bernoulli(), yes, torch.zeros(2, 1, dtype=torch.float64), 2, 1)
    assert truth - 0.2 < found.elbo < truth


def test_gaussian_noise_needs_no_step():
    gram, targets = kernel(5), torch.randn(5, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    start = torch.zeros(5, 1, dtype=torch.float64)
    laplace = coupled_mode(gram, Observations(start, GaussianNoise(2.0), targets))
    found = fit_variational(gram, Observations(start, GaussianNoise(2.0), targets), VariationalGaussian())
    assert found.elbo == pytest.approx(laplace.log_evidence, abs=1e-8)
    torch.testing.assert_close(found.outputs, laplace.outputs, rtol=0, atol=1e-6)


def test_the_posterior_mean_is_that_of_the_true_posterior_more_closely_than_the_mode():
    gram, start = kernel(2, 5, 60.0), torch.zeros(2, 1, dtype=torch.float64)
    targets = torch.tensor([[1.0], [1.0]], dtype=torch.float64)
    laplace = coupled_mode(gram, Observations(start, Bernoulli(), targets))
    found = fit_variational(gram, Observations(start, Bernoulli(), targets), VariationalGaussian(draws=1024))
    nodes, weights = _hermite(60)
    f = torch.cartesian_prod(nodes, nodes) @ torch.linalg.cholesky(gram).T
    log_w = torch.cartesian_prod(weights.log(), weights.log()).sum(1) + torch.nn.functional.logsigmoid(f).sum(1)
    true = (log_w.softmax(0)[:, None] * f).sum(0)
    assert (found.outputs.flatten() - true).norm() < 0.5 * (laplace.outputs.flatten() - true).norm()
    assert math.isfinite(found.elbo)
