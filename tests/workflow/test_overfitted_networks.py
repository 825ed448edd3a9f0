"""A network that has learned its training data by heart: what is said of its posterior, and what validation data mends."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

import pytest
import sklearn.datasets
import torch
from torch import nn

import posterity as pt
from posterity.errors import Memorisation
from posterity.kernel import LeaveOneOut

Pair = tuple[torch.Tensor, torch.Tensor]

from_trained = import_module("posterity.workflow.ways.structured")


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


def test_validation_data_mends_it(by_heart):
    x, y = examples(500, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mended = pt.posterior(by_heart, examples(100, 0), validation=examples(100, 2), progress=False)
    assert pt.metrics.score(mended.predict(x).probs, y).nll < 0.72  # guessing is ln 2 = 0.69


def test_without_it_a_warning_names_the_remedies_and_the_posterior_is_as_wide_as_the_training_data_bears(by_heart):
    data, (x, y) = examples(100, 0), examples(500, 1)
    with pytest.warns(Memorisation, match=r"memorised.*validation=\(x, y\).*pt\.learn") as told:
        alone = pt.posterior(by_heart, data, progress=False)
    assert told[0].filename == __file__
    own, ours = (
        pt.metrics.score(p, data[1]).nll for p in (by_heart(data[0]).detach().softmax(1), alone.predict(data[0]).probs)
    )
    assert ours <= own + from_trained.SPARED
    wider = replace(
        alone.predictor.calibration, tau=from_trained.TAUS[from_trained.TAUS.index(alone.predictor.calibration.tau) + 1]
    )
    beyond = pt.predict(by_heart, alone.posterior, data[0], calibration=wider).probs
    assert pt.metrics.score(beyond, data[1]).nll > own + from_trained.SPARED
    before, after = (pt.metrics.score(p, y).nll for p in (by_heart(x).detach().softmax(1), alone.predict(x).probs))
    assert before > 2
    assert 0.8 < after < 0.7 * before  # better, and still no good: guessing is 0.69


def tables(seed: int) -> Iterator[tuple[nn.Module, Pair, Pair]]:
    """Networks that have memorised half of a table of scikit-learn, with the half that they know and the other one."""
    for name in ("breast_cancer", "digits", "iris", "wine"):
        x, y = map(torch.as_tensor, getattr(sklearn.datasets, f"load_{name}")(return_X_y=True))
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        x, (y, answers) = (x.float() - x.float().mean(0)) / (x.float().std(0) + 1e-3), y[order].tensor_split(2)
        known, new = x[order].tensor_split(2)
        torch.manual_seed(seed)
        layers = [nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, int(y.max()) + 1)]
        model = nn.Sequential(*layers)
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(150):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(known), y).backward()
            optimiser.step()
        yield model.eval(), (known, y), (new, answers)


def test_a_last_layer_of_a_memorised_network_warns_and_costs_no_example_more_than_promised():
    networks = [*tables(30), *tables(31), *list(tables(32))[:2]]
    better = 0
    for model, data, (x, y) in networks:
        with pytest.warns(Memorisation, match=r"98%.*validation=\(x, y\)"):
            fit = pt.posterior(model, data, blocks=["4"], progress=False)
        each = torch.arange(len(y))
        own, ours = (p.double().log()[each, y] for p in (model(x).detach().double().softmax(1), fit.predict(x).probs))
        assert float((own - ours).max()) <= from_trained.PROMISED + 1e-6
        better += float(ours.mean()) > float(own.mean())
    assert len(networks) == 10
    assert better >= 5  # it helps where the network is sure of what is wrong


def test_a_network_that_was_held_back_is_not_accused():
    data = examples(300, 0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
    pt.train(model, data, pt.isotropic(model, 10.0), epochs=10, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pt.posterior(model, data, progress=False).predictor.calibration.tau > 0


def test_numbers_keep_the_prediction_of_the_network():
    x, _ = examples(30, 0)
    y = x[:, :1] + 0.1 * torch.randn(30, 1, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 200), nn.ReLU(), nn.Linear(200, 1))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(300):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimiser.step()
    with pytest.warns(Memorisation, match="network's own"):
        fit = pt.posterior(model, (x, y), pt.GaussianNoise(), progress=False)
    assert fit.predictor.calibration.tau == 0


@pytest.mark.parametrize(("wide", "share"), [(3.9, 1.0), (8.0, 0.1), (400.0, 0.003), (1e9, 0.0)])
def test_a_posterior_that_is_too_wide_for_its_own_examples_is_narrowed(wide, share):
    # At equal logits of two classes H has the eigenvalues 0 and 1/2 along (1, −1), so HS < 1 is a width below 2 · 2.
    seen = LeaveOneOut(
        torch.zeros(5, 2, dtype=torch.float64), wide / 2 * torch.eye(2, dtype=torch.float64).expand(5, 2, 2)
    )
    assert from_trained._believable(seen, pt.Categorical()) == share
