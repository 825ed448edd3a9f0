"""Regression from scratch: networks that leave examples out choose the prior's strength, the noise and the width."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.blocks import Replica, find_blocks
from posterity.data.batches import Batch
from posterity.data.leave_out import LeaveOut
from posterity.kernel import outputs_at
from posterity.predictive.exact import AveragedNetworks, ExactLinear
from posterity.predictive.predictor import Stack
from posterity.workflow.plan import choose_plan, facts_of
from posterity.workflow.problem import Problem
from posterity.workflow.recipe import Limits, Recipe, SmallNetworks
from posterity.workflow.ways import small_networks
from posterity.workflow.ways.candidate import Options

QUICK = SmallNetworks(coarse=(0.01, 1.0, 100.0), long=400)
"""Enough for a line."""


def learn(data: tuple[torch.Tensor, torch.Tensor], model: nn.Module | None = None, **options: Any) -> pt.Fit:
    options = {"likelihood": pt.GaussianNoise(), "recipe": Recipe(small_networks=QUICK), "progress": False} | options
    return pt.learn(model or network(), data, **options)


def line(n: int = 80, noise: float = 0.3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    return x, x[:, :1] - 0.5 * x[:, 1:2] + noise * torch.randn(n, 1, generator=generator)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))


def siblings_of(
    data: tuple[torch.Tensor, torch.Tensor], recipe: SmallNetworks = QUICK, model: nn.Module | None = None
) -> small_networks.Siblings:
    return small_networks.train_siblings(Problem.of(model or network(), data, pt.GaussianNoise()), recipe)


def test_a_sibling_knows_nothing_of_what_it_left_out() -> None:
    x, y = line()
    one = SmallNetworks(coarse=(1.0,), fine=(1.0,), long=400)
    before = siblings_of((x, y), one)
    out = before.folds == 2
    after = siblings_of((x, torch.where(out[:, None], y + 5, y)), one)
    assert torch.equal(after.folds, before.folds)
    for fold, (old, new) in enumerate(zip(before.others, after.others, strict=True)):
        same = all(torch.equal(old[name], new[name]) for name in old)
        assert same == (fold == 2)


def test_batched_copies_train_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    short = SmallNetworks(coarse=(0.01, 1.0, 100.0), long=20)
    together = siblings_of(line(), short)

    def refused(*_: object, **__: object) -> object:
        raise RuntimeError("this layer cannot be batched")

    monkeypatch.setattr(small_networks, "vmap", refused)
    alone = siblings_of(line(), short)
    assert alone.precision == together.precision
    for name, weights in together.network.items():
        torch.testing.assert_close(alone.network[name], weights, rtol=1e-3, atol=1e-4)


def test_noise_and_strength_follow_the_data() -> None:
    quiet, loud = siblings_of(line(noise=0.05)), siblings_of(line(noise=1.0))
    assert loud.precision / loud.noise.value > quiet.precision / quiet.noise.value
    fit = learn(line(200, 0.3))
    assert isinstance(fit.likelihood, pt.GaussianNoise)
    assert 0.06 < 1 / fit.likelihood.value < 0.13  # 0.09 is the truth
    x, y = line(400, 0.3, seed=1)
    found = fit.predict(x)
    assert found.variance is not None
    covered = float(((y - found.mean).abs() < 1.645 * found.variance.sqrt()).float().mean())
    assert 0.85 < covered < 0.95


def test_the_prediction_is_around_the_networks() -> None:
    data = line()
    fit = learn(data)
    assert isinstance(fit.predictor, Stack)
    assert len(fit.predictor.parts) == LeaveOut.of(data[1]).folds.max() + 2
    moments = fit.predictor.moments(Replica(fit.model), Batch.of(data, 0))
    assert sum(m.weight for m in moments) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(moments[0].mean, fit.model(data[0]).detach().double())
    torch.testing.assert_close(
        fit.predict(data[0]).mean.double(), sum(m.weight * m.mean for m in moments), rtol=1e-5, atol=1e-6
    )


def test_the_choice_is_paid_for_and_the_data_is_known() -> None:
    data = line()
    fit = learn(data)
    (choice,) = fit.prior.provenance.choices
    assert choice.options == len(small_networks.PRECISIONS)
    precision = float(fit.prior.precision["0"].dense()[0, 0])
    assert min(abs(math.log(p / precision)) for p in small_networks.PRECISIONS) < 1e-6


def test_a_network_of_unknown_past_is_not_washed_clean() -> None:
    model = network()
    with torch.no_grad():
        model[0].weight.mul_(30)  # trained elsewhere, for all that is known
    fit = learn(line(), model)
    assert fit.plan.ways == ("small networks",)
    assert not fit.posterior.provenance.is_known
    assert learn(line()).posterior.provenance.is_known


def test_frozen_layers_stay_as_they_are() -> None:
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    assert not any(name.startswith("0.") for name in siblings_of(line(), model=model).network)
    assert torch.equal(model[0].weight, before)


def test_a_saved_fit_predicts_as_it_did(tmp_path: Path) -> None:
    data = line()
    fit = learn(data)
    fit.save(tmp_path / "a.fit")
    again = pt.load(tmp_path / "a.fit", network())
    old, new = fit.predict(data[0]), again.predict(data[0])
    torch.testing.assert_close(new.mean, old.mean, rtol=0, atol=0)
    torch.testing.assert_close(new.variance, old.variance, rtol=0, atol=0)


def test_a_network_that_stays_as_it_is_has_no_siblings() -> None:
    model = network()
    weights = [p.detach().clone() for p in model.parameters()]
    options = {"start": "model", "epochs": 0}
    fit = learn(line(), model, training=options)
    assert isinstance(fit.predictor, ExactLinear)
    assert all(torch.equal(a, b) for a, b in zip(weights, fit.model.parameters(), strict=True))


def test_large_or_normalised_networks_are_trained_alone() -> None:
    large = nn.Sequential(nn.Linear(4, 5000), nn.Tanh(), nn.Linear(5000, 1))
    normalised = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))

    def ways(model: nn.Module) -> tuple[str, ...]:
        problem = Problem.of(model, line(), pt.GaussianNoise())
        return choose_plan(facts_of("learn", problem, Options())).ways

    assert [ways(model) for model in (network(), large, normalised)] == [
        ("small networks",),
        ("one network",),
        ("one network",),
    ]


MANY = Recipe(small_networks=QUICK, limits=Limits(side=70))
"""As if 80 examples were more than an exact posterior takes."""


def networks_in(fit: pt.Fit) -> AveragedNetworks:
    assert isinstance(fit.predictor, Stack)
    found = fit.predictor.parts[-1][1]
    assert isinstance(found, AveragedNetworks)
    return found


def test_more_examples_than_an_exact_posterior_takes_are_learned_by_siblings_too(tmp_path: Path) -> None:
    fit = learn(line(), recipe=MANY)
    x, y = line(500, seed=1)
    found = fit.predict(x)
    batch, blocks = Batch((x,), {}, y, 0), find_blocks(fit.model)
    each = [(share, outputs_at(fit.model, blocks, weights, batch)) for share, weights in networks_in(fit).networks]
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
    assert pt.metrics.ood_auroc(found.unknown, far.unknown) > 0.95
    fit.save(tmp_path / "a.fit")
    again = pt.load(tmp_path / "a.fit", network()).predict(x)
    for name in ("mean", "variance", "unknown"):
        torch.testing.assert_close(getattr(again, name), getattr(found, name), rtol=0, atol=0)


def test_a_noise_that_is_given_stays() -> None:
    fit = learn(line(), likelihood=pt.GaussianNoise(4.0), recipe=MANY)
    assert networks_in(fit)
    assert fit.likelihood == pt.GaussianNoise(4.0)
    torch.testing.assert_close(fit.predict(line()[0]).aleatoric, torch.full((80, 1), 0.25))
