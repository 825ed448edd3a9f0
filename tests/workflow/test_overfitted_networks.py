"""A network that has learned its training data by heart says of unseen data how sure it is, without validation data."""

from __future__ import annotations

import logging
from importlib import import_module

import pytest
import torch
from torch import nn

import posterity as pt


def examples(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes with one label in five wrong."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    wrong = torch.rand(n, generator=generator) < 0.2
    return x, ((x[:, 0] > 0) ^ wrong).long()


@pytest.fixture(scope="module")
def by_heart() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    x, y = examples(100, 0)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(300):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    assert bool((model(x).argmax(1) == y).all())
    return model.eval()


def test_its_posterior_predicts_better_than_it_does_without_any_other_data(by_heart):
    x, y = examples(500, 1)
    fit = pt.posterior(by_heart, examples(100, 0), progress=False)
    own = pt.score(by_heart(x).detach().softmax(1), y).nll
    assert own > 2
    assert pt.score(fit.predict(x).probs, y).nll < 0.7  # guessing is ln 2
    assert fit.choice is not None
    assert 0.6 < fit.choice.best.nll < 1.2  # what leave-one-out expects, of a network that makes no error in training
    assert fit.predict(x, method="linearised").probs.shape == (500, 2)


def test_its_noise_is_not_that_of_its_residuals():
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 20)[:, None]
    y = torch.sin(3 * x) + 0.3 * torch.randn(20, 1)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(1500):
        optimiser.zero_grad()
        (model(x) - y).square().mean().backward()
        optimiser.step()
    residual = float((model(x) - y).square().mean().sqrt())
    fit = pt.posterior(model.eval(), (x, y), pt.GaussianNoise(), progress=False)
    assert residual < 0.2
    assert 0.2 < fit.likelihood.value**-0.5 < 0.6


def test_many_gradients_are_not_written_out(by_heart, monkeypatch):
    monkeypatch.setattr(import_module("posterity.workflow.from_trained"), "GRADIENTS", 2**16)
    assert pt.posterior(by_heart, examples(100, 0), progress=False).function is None


def test_where_predictions_stay_as_they_were_a_warning_says_so(caplog):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[40.0, 0.0], [-40.0, 0.0]]))
        model[0].bias.zero_()
    x = torch.randn(60, 2)
    with caplog.at_level(logging.WARNING, logger="posterity"):
        pt.posterior(model, (x, (x[:, 0] < 0).long()), precision=1e-6, estimator=pt.Diagonal(), progress=False)
    assert "validation=(x, y)" in caplog.text
