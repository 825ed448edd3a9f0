"""Regression from scratch: networks that leave examples out choose the prior's strength, the noise and the width."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.curvature.batches import Batch
from posterity.kernel import outputs_at
from posterity.kernel.kernels import gather
from posterity.workflow import folds
from posterity.workflow.fold_networks import SMALL, suits
from posterity.workflow.folders import Remembered, open_parts, save_parts


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a line."""
    monkeypatch.setattr(folds, "LONG", 400)
    monkeypatch.setattr(folds, "COARSE", (0.01, 1.0, 100.0))


def line(n: int = 80, noise: float = 0.3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    return x, x[:, :1] - 0.5 * x[:, 1:2] + noise * torch.randn(n, 1, generator=generator)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))


def siblings_of(data: tuple[torch.Tensor, torch.Tensor]) -> folds.Siblings:
    model = network()
    few = gather(model, data, pt.GaussianNoise(), 256, 1000)
    assert few is not None
    return folds.train_siblings(model, few, pt.GaussianNoise(), progress=False)


def test_a_sibling_knows_nothing_of_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folds, "COARSE", (1.0,))
    monkeypatch.setattr(folds, "FINE", (1.0,))
    x, y = line()
    before = siblings_of((x, y))
    out = before.folds == 2
    after = siblings_of((x, torch.where(out[:, None], y + 5, y)))
    assert torch.equal(after.folds, before.folds)
    for fold, (old, new) in enumerate(zip(before.others, after.others, strict=True)):
        same = all(torch.equal(old[name], new[name]) for name in old)
        assert same == (fold == 2)


def test_batched_copies_train_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folds, "LONG", 20)
    together = siblings_of(line())

    def refused(*_: object, **__: object) -> object:
        raise RuntimeError("this layer cannot be batched")

    monkeypatch.setattr(folds, "vmap", refused)
    alone = siblings_of(line())
    assert alone.precision == together.precision
    for name, weights in together.network.items():
        torch.testing.assert_close(alone.network[name], weights, rtol=1e-3, atol=1e-4)


def test_noise_and_strength_follow_the_data() -> None:
    quiet, loud = siblings_of(line(noise=0.05)), siblings_of(line(noise=1.0))
    assert loud.precision / loud.noise.value > quiet.precision / quiet.noise.value
    fit = pt.learn(network(), line(200, 0.3), likelihood=pt.GaussianNoise(), progress=False)
    assert isinstance(fit.likelihood, pt.GaussianNoise)
    assert 0.06 < 1 / fit.likelihood.value < 0.13  # 0.09 is the truth
    x, y = line(400, 0.3, seed=1)
    found = fit.predict(x)
    assert found.variance is not None
    covered = float(((y - found.mean).abs() < 1.645 * found.variance.sqrt()).float().mean())
    assert 0.85 < covered < 0.95


def test_the_prediction_is_around_the_networks() -> None:
    data = line()
    fit = pt.learn(network(), data, likelihood=pt.GaussianNoise(), progress=False)
    assert fit.function is not None
    assert len(fit.function.siblings) == folds.folds_of(data[1]).max() + 1
    moments = fit.function.moments(fit.model, [Batch.of(data, 0)])
    assert sum(m.weight for m in moments) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(moments[0].mean, fit.model(data[0]).detach().double())
    torch.testing.assert_close(
        fit.predict(data[0]).mean.double(), sum(m.weight * m.mean for m in moments), rtol=1e-5, atol=1e-6
    )


def test_the_choice_is_paid_for_and_the_data_is_known() -> None:
    data = line()
    fit = pt.learn(network(), data, likelihood=pt.GaussianNoise(), progress=False)
    (choice,) = fit.prior.provenance.choices
    assert choice.options == len(folds.PRECISIONS)
    precision = float(fit.prior.precision["0"].dense()[0, 0])
    assert min(abs(math.log(p / precision)) for p in folds.PRECISIONS) < 1e-6


def test_a_network_of_unknown_past_is_not_washed_clean() -> None:
    model = network()
    with torch.no_grad():
        model[0].weight.mul_(30)  # trained elsewhere, for all that is known
    fit = pt.learn(model, line(), likelihood=pt.GaussianNoise(), progress=False)
    assert fit.function is not None
    assert fit.function.siblings
    assert not fit.posterior.provenance.is_known
    assert pt.learn(network(), line(), likelihood=pt.GaussianNoise(), progress=False).posterior.provenance.is_known


def test_frozen_layers_stay_as_they_are() -> None:
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    few = gather(model, line(), pt.GaussianNoise(), 256, 1000)
    assert few is not None
    assert not any(
        name.startswith("0.") for name in folds.train_siblings(model, few, pt.GaussianNoise(), progress=False).network
    )
    assert torch.equal(model[0].weight, before)


def test_a_saved_fit_predicts_as_it_did(tmp_path: Path) -> None:
    data = line()
    fit = pt.learn(network(), data, likelihood=pt.GaussianNoise(), progress=False)
    save_parts(tmp_path, fit, None, data)
    again = open_parts(tmp_path, network(), Remembered.of(fit, len(data[0])))
    old, new = fit.predict(data[0]), again.predict(data[0])
    torch.testing.assert_close(new.mean, old.mean)
    torch.testing.assert_close(new.variance, old.variance)


def test_a_network_that_stays_as_it_is_has_no_siblings() -> None:
    model = network()
    weights = [p.detach().clone() for p in model.parameters()]
    options = {"start": "model", "epochs": 0}
    fit = pt.learn(model, line(), likelihood=pt.GaussianNoise(), training=options, progress=False)
    assert fit.function is not None
    assert not fit.function.siblings
    assert all(torch.equal(a, b) for a, b in zip(weights, fit.model.parameters(), strict=True))


def test_large_or_normalised_networks_are_trained_alone() -> None:
    prior = pt.isotropic(network())
    assert suits(network(), prior, SMALL)
    large = nn.Sequential(nn.Linear(4, 5000), nn.Tanh(), nn.Linear(5000, 1))
    assert not suits(large, pt.isotropic(large), SMALL)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, torch.Tensor]:
    """As if 80 examples were more than an exact posterior takes."""
    monkeypatch.setattr("posterity.kernel.kernels.SIDE", 70)
    return line()


def test_more_examples_than_an_exact_posterior_takes_are_learned_by_siblings_too(
    many: tuple[torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    fit = pt.learn(network(), many, likelihood=pt.GaussianNoise(), progress=False)
    assert fit.function is None
    assert fit.networks is not None
    x, y = line(500, seed=1)
    found = fit.predict(x)
    batch = Batch((x,), {}, y, 0)
    each = [(share, outputs_at(fit.model, weights, batch)) for share, weights in fit.networks.weights]
    mean = torch.stack([share * outputs for share, outputs in each]).sum(0)
    spread = torch.stack([share * (outputs - mean).square() for share, outputs in each]).sum(0)
    torch.testing.assert_close(found.mean, mean.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.epistemic, spread.detach(), rtol=1e-3, atol=1e-6)
    # The noise is 0.3: what is left out tells it within the accuracy of 80 examples.
    assert 0.22 < fit.likelihood.value**-0.5 < 0.4  # type: ignore[attr-defined]
    assert float((found.mean - y).square().mean()) ** 0.5 < 0.4
    far = fit.predict(20 * x)
    assert far.unknown is not None
    assert found.unknown is not None
    assert pt.ood_auroc(found.unknown, far.unknown) > 0.95
    save_parts(tmp_path, fit, None, None)
    opened = open_parts(tmp_path, network(), Remembered.of(fit, 80))
    again = opened.predict(x)
    for name in ("mean", "variance", "unknown"):
        torch.testing.assert_close(getattr(again, name), getattr(found, name))


def test_a_noise_that_is_given_stays(many: tuple[torch.Tensor, torch.Tensor]) -> None:
    fit = pt.learn(network(), many, likelihood=pt.GaussianNoise(4.0), progress=False)
    assert fit.networks is not None
    assert fit.likelihood == pt.GaussianNoise(4.0)
    torch.testing.assert_close(fit.predict(many[0]).aleatoric, torch.full((80, 1), 0.25))
