"""The sampled predictive: what many networks say on average."""

from __future__ import annotations

import pytest
import torch
from curvature_cases import case, data
from linear_gaussian import regression
from test_linearised import PRECISIONS, gaussian
from torch import nn

import posterity as pt
from posterity.blocks import find_blocks, run_with, write_blocks
from posterity.predictive import draws as module


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_mean_and_variance_of_a_linear_model_are_those_of_the_closed_form():
    problem = regression()
    mean, precision = problem.posterior()
    layer = problem.network(mean)
    posterior = pt.update(
        layer,
        pt.estimate(
            layer, (problem.x, problem.y), pt.KFOC(pt.curvature.ExactLabels()), problem.likelihood, progress=False
        ),
        pt.isotropic(layer, 0.7),
    )
    new, n = regression(9, seed=5), 20_000
    found = pt.predict(layer, posterior, new.x, problem.likelihood, method="sampled", samples=n, generator=seeded())
    variance = (new.design @ torch.linalg.inv(precision) * new.design).sum(1)
    # Five standard errors of a mean and of a variance.
    assert ((found.mean[:, 0] - new.design @ mean).abs() < 5 * (variance / n).sqrt()).all()
    assert ((found.epistemic[:, 0] - variance).abs() < 5 * variance * (2 / n) ** 0.5).all()
    assert torch.equal(found.aleatoric, torch.full_like(found.mean, 1 / problem.noise))
    assert torch.equal(found.variance, found.epistemic + found.aleatoric)


@pytest.mark.parametrize("structure", PRECISIONS)
@pytest.mark.parametrize("name", ["conv", "norms", "encoder"])
def test_it_is_the_average_over_networks_with_the_drawn_weights(name, structure):
    it = case(name)
    posterior = gaussian(it.model, structure, 5.0)
    found = pt.predict(it.model, posterior, it.x, method="sampled", samples=4, generator=seeded(), keep_draws=True)
    draws = posterior.sample(4, generator=seeded())
    blocks = find_blocks(it.model)
    it.model.eval()
    with torch.no_grad():
        one_by_one = torch.stack(
            [run_with(it.model, write_blocks(blocks, {k: d[i] for k, d in draws.items()}), (it.x,)) for i in range(4)]
        )
    it.model.train()
    torch.testing.assert_close(found.draws, one_by_one, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.probs, one_by_one.softmax(-1).mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.logits, one_by_one.mean(0), rtol=1e-12, atol=1e-12)


def test_draws_in_several_goes_are_as_many_and_as_spread(monkeypatch):
    it = case("mlp")
    posterior = gaussian(it.model, "kronecker")
    monkeypatch.setattr(module, "DRAWS_AT_ONCE", 3 * posterior.size)
    found = pt.predict(it.model, posterior, it.x, method="sampled", samples=10, generator=seeded(), keep_draws=True)
    assert len(found.draws) == 10
    assert len(torch.unique(found.draws[:, 0, 0])) == 10


@pytest.mark.parametrize("method", ["sampled", "linearised"])
@pytest.mark.parametrize("structure", ["kronecker", "sum of two", "diagonal", "dense", "identity"])
def test_a_cold_posterior_is_the_network_itself(method, structure):
    it = case("mlp")
    cold = gaussian(it.model, structure).tempered(1e-20)
    found = pt.predict(it.model, cold, it.x, method=method, samples=5)
    assert (found.probs - it.outputs.softmax(-1)).abs().max() < 1e-8
    assert found.epistemic.max() < 1e-8
    assert (found.entropy - torch.distributions.Categorical(logits=it.outputs).entropy()).abs().max() < 1e-8


def test_blocks_without_a_gaussian_stay_as_they_are():
    it = case("mlp")
    posterior = gaussian(it.model, "kronecker").without("0")
    found = pt.predict(it.model, posterior, it.x, method="sampled", samples=3, keep_draws=True, generator=seeded())
    hidden = torch.tanh(it.model[0](it.x)).detach()
    head = posterior.sample(3, generator=seeded())["2"]
    expected = torch.cat((hidden, torch.ones(len(hidden), 1).double()), 1) @ head.mT
    torch.testing.assert_close(found.draws, expected)


def test_a_single_precision_network_takes_a_posterior_in_double():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = (t.float() if t.is_floating_point() else t for t in data("mlp"))
    posterior = pt.update(model, pt.estimate(model, (x, y), progress=False), pt.isotropic(model))
    for method in ("sampled", "linearised"):
        found = pt.predict(model, posterior, x, method=method)
        assert found.probs.dtype == torch.float32
        assert (found.probs.sum(-1) - 1).abs().max() < 1e-6
