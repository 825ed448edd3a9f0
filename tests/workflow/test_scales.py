"""Every way to choose scales, and both kinds of inference, as options of `learn`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.algebra import FlooredMatrix
from posterity.kernel.choose import _distinct
from posterity.kernel.kernels import FLOORS
from posterity.predictive.linearised import StructuredGaussian
from posterity.workflow.problem import Problem
from posterity.workflow.ways.around_prior import RATIOS, around_prior
from posterity.workflow.ways.candidate import Options

QUICK = {"epochs": 3}
FEW_DRAWS = pt.kernel.VariationalGaussian(draws=12, steps=4)


def points(seed: int, n: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator)
    return x, (x + 0.3 * torch.randn(n, 3, generator=generator)).argmax(1)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.fixture(scope="module")
def prior() -> pt.Gaussian:
    return pt.learn(network(), points(0, 200), training=QUICK, progress=False).posterior


@pytest.mark.parametrize("scales", ["loo", "elbo", "evidence", "bayes", "catoni", "mcallester"])
def test_every_criterion_gives_a_fit_that_predicts(prior: pt.Gaussian, scales: str) -> None:
    fit = pt.learn(
        network(),
        points(1),
        prior,
        head="keep",
        scales=scales,
        inference=FEW_DRAWS if scales == "elbo" else None,
        training=QUICK,
        progress=False,  # type: ignore[arg-type]
    )
    probs = fit.predict(points(2)[0]).probs
    torch.testing.assert_close(probs.sum(1), torch.ones(len(probs)))
    assert isinstance(fit.predictor, StructuredGaussian) == (scales in ("catoni", "mcallester"))
    if fit.choice is not None and scales != "bayes":
        assert fit.choice.criterion == scales


@pytest.mark.parametrize("seed", [2, 5])
def test_evidence_may_leave_all_layers_but_a_new_head_as_they_are(prior: pt.Gaussian, seed: int) -> None:
    fit = pt.adapt(network(), points(seed, 3), prior, head="new", scales="evidence", progress=False)
    assert fit.choice is not None
    strength = fit.choice.best.posterior.strength
    assert strength is not None
    assert strength.floor == float("inf")
    # The Gaussian over weights holds them by the largest floor of the grid instead, for a head of its own size.
    held = fit.prior.precision["0"]
    assert isinstance(held, FlooredMatrix)
    assert any(held.floor == pytest.approx(max(FLOORS) * ratio) for ratio in RATIOS)
    assert torch.isfinite(fit.predict(points(9)[0]).probs).all()


def test_bounds_choose_their_scales(prior: pt.Gaussian) -> None:
    fit = pt.learn(network(), points(1), prior, head="keep", scales="catoni", training=QUICK, progress=False)
    found = pt.pacbayes.tune(fit.model, fit.curvature, fit.prior, "catoni").scales
    assert fit.scales.beta == pytest.approx(found.beta, rel=1e-6)


def test_an_unknown_criterion_is_named() -> None:
    with pytest.raises(ValueError, match=r"'catoni'.*not 'marglik'"):
        pt.learn(network(), points(1), scales="marglik", progress=False)  # type: ignore[arg-type]


def test_variational_posteriors_take_the_place_of_laplace(prior: pt.Gaussian) -> None:
    fits = [
        pt.adapt(network(), points(1), prior, head="keep", inference=inference, progress=False)
        for inference in (pt.kernel.Laplace(), FEW_DRAWS)
    ]
    kinds = [type(fit.choice.best.posterior).__name__ for fit in fits if fit.choice is not None]
    assert kinds == ["FunctionPosterior", "VariationalPosterior"]
    laplace, variational = (fit.predict(points(2)[0]).probs for fit in fits)
    assert 1e-4 < float((laplace - variational).abs().max()) < 0.3


def test_variational_inference_says_that_it_has_no_groups(prior: pt.Gaussian) -> None:
    data = points(1)
    with pytest.raises(ValueError, match="groups= are left out together"):
        pt.adapt(network(), data, prior, head="keep", inference=FEW_DRAWS, groups=torch.arange(24) // 2, progress=False)


def test_posteriors_that_say_the_same_count_once(prior: pt.Gaussian) -> None:
    model = network()
    problem = Problem.of(model, points(1), pt.Categorical(), prior=prior, head="keep")
    member = around_prior(problem, Options()).predictor.choice.best  # type: ignore[union-attr]
    assert member.log_probs is not None
    assert _distinct([member, member, member]) == [member]
    others = [replace(member, log_probs=member.log_probs - shift) for shift in (0.0, 0.5)]
    assert _distinct(others) == others
