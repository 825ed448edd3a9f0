"""Bounds for regression: the closed form against draws, and a certificate that needs no belief in the noise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.pacbayes.regression import certify_clipped
from posterity_studies.shared.sub_gamma import LinearModel, sub_gamma


def problem(n: int = 200, d: int = 3, noise: float = 0.3, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(d, generator=generator, dtype=torch.float64) * 0.5
    x = 0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = x @ theta + math.sqrt(noise) * torch.randn(n, generator=generator, dtype=torch.float64)
    return x, y, LinearModel(noise, 0.2, 0.25, float(theta.norm())), theta


def test_the_bound_is_its_formula_and_needs_lambda_c_below_one():
    assert sub_gamma(1.5, 10.0, 100, 0.05, 0.8, 0.2) == pytest.approx(1.5 + (10 + math.log(20)) / 100 + 0.8 / (2 * 0.8))
    with pytest.raises(ValueError, match="below 1"):
        sub_gamma(1.5, 10.0, 100, 0.05, 0.8, 1.0)


def test_the_closed_form_equals_an_average_over_draws():
    x, y, model, _ = problem()
    mean, precision = model.posterior(x, y)
    posterior = torch.distributions.MultivariateNormal(mean, precision_matrix=precision)
    prior = torch.distributions.MultivariateNormal(
        torch.zeros(3, dtype=torch.float64), 0.2 * torch.eye(3, dtype=torch.float64)
    )
    torch.manual_seed(0)
    theta = posterior.sample((20_000,))
    nll = 0.5 * (y - theta @ x.T).square().mean(1) / 0.3 + 0.5 * math.log(2 * math.pi * 0.3)
    kl = float(torch.distributions.kl_divergence(posterior, prior))
    s2, c = model.sub_gamma_constants(3)
    expected = sub_gamma(float(nll.mean()), kl, 200, 0.05, s2, c)
    assert model.bound(x, y) == pytest.approx(expected, abs=5 * float(nll.std()) / 20_000**0.5)


def test_the_posterior_is_bayes_rule_because_no_other_has_a_lower_bound():
    x, y, model, _ = problem()
    evidence_like = model.bound(x, y)
    mean, precision = model.posterior(x, y)
    s2, c = model.sub_gamma_constants(3)
    for factor in (0.7, 1.4):
        inverse = torch.linalg.inv(precision) / factor
        nll = 0.5 * ((y - x @ mean).square().sum() + (x @ inverse @ x.T).trace()) / 0.3 / 200
        nll = float(nll) + 0.5 * math.log(2 * math.pi * 0.3)
        kl = 0.5 * float(
            (inverse.trace() + mean @ mean) / 0.2 - 3 - torch.linalg.slogdet(inverse).logabsdet + 3 * math.log(0.2)
        )
        assert sub_gamma(nll, kl, 200, 0.05, s2, c) > evidence_like


def test_it_holds_on_fresh_data_where_its_assumptions_do():
    for seed in range(10):
        x, y, model, theta = problem(seed=seed)
        mean, precision = model.posterior(x, y)
        shift = mean - theta
        # E over x of the squared error, its spread over the posterior, and the noise: all known here.
        expected = 0.25 * float(shift @ shift + torch.linalg.inv(precision).trace()) + 0.3
        risk = 0.5 * expected / 0.3 + 0.5 * math.log(2 * math.pi * 0.3)
        assert risk <= model.bound(x, y)


def test_the_clipped_certificate_bounds_the_clipped_error_of_fresh_data():
    torch.manual_seed(0)
    x = torch.rand(800, 1) * 4 - 2
    y = torch.sin(x) + 0.1 * torch.randn(800, 1)
    model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
    likelihood = pt.GaussianNoise(100.0)
    fit = pt.learn(
        model, (x[:400], y[:400]), likelihood=likelihood, training={"epochs": 80, "lr": 0.02}, progress=False
    )
    prior = fit.posterior.tempered(1e-2)
    generator = torch.Generator().manual_seed(0)
    found = certify_clipped(model, prior, prior, (x[400:], y[400:]), clip=1.0, generator=generator)
    fresh = torch.rand(2000, 1) * 4 - 2
    targets = torch.sin(fresh) + 0.1 * torch.randn(2000, 1)
    draws = pt.predict(model, prior, fresh, likelihood, samples=50, keep_draws=True, generator=generator).draws
    risk = float((draws - targets).square().clamp_max(1.0).mean())
    assert risk < found.bound < 0.3
    assert found.gibbs < found.bound
    assert "min(" in str(found)
    with pytest.raises(pt.errors.Overlap):
        certify_clipped(model, prior, prior, (x[:400], y[:400]), clip=1.0)
    with pytest.raises(ValueError, match="positive"):
        certify_clipped(model, prior, prior, (x[400:], y[400:]), clip=0.0)
