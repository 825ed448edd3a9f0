"""A trained network becomes a posterior; a network and unlabelled inputs become a prior."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import posterity as pt
from posterity.errors import BadData


def trained(n: int = 400) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(n, 5)
    y = (x[:, 0] + x[:, 1] ** 2 > 1).long() + (x[:, 2] > 0.5).long()
    model = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 3))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-4)
    for _ in range(150):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model, x, y


def test_a_trained_network_becomes_a_posterior_in_one_line_and_stays_as_it_is():
    model, x, y = trained()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    fit = pt.posterior(model, (x, y), progress=False)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    new = torch.randn(600, 5)
    answers = (new[:, 0] + new[:, 1] ** 2 > 1).long() + (new[:, 2] > 0.5).long()
    with torch.no_grad():
        plain = model(new).softmax(-1)
    ours, own = pt.metrics.score(fit.predict(new).probs, answers), pt.metrics.score(plain, answers)
    assert ours.nll < own.nll + 0.01
    assert fit.predictor.calibration.temperature >= 1
    assert fit.predict(new).unknown.shape == (600,)


def test_the_last_layer_alone_and_a_given_precision_are_taken():
    model, x, y = trained(100)
    fit = pt.posterior(model, (x, y), blocks=["2"], precision=3.0, progress=False)
    assert fit.posterior.blocks == ("2",)
    assert fit.prior.card.precision == 3.0


def test_validation_data_calibrates_where_it_is_given():
    model, x, y = trained()
    fit = pt.posterior(model, (x[:200], y[:200]), validation=(x[200:], y[200:]), progress=False)
    (around, _), (alone, _) = [(part.calibration, weight) for weight, part in fit.predictor.parts]
    assert 0 <= around.tau <= 1
    assert alone.tau == 0


def test_a_regression_takes_the_noise_of_its_residuals():
    torch.manual_seed(0)
    x = torch.randn(200, 2)
    y = x @ torch.tensor([[1.0], [2.0]]) + 0.3 * torch.randn(200, 1)
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0]]))
        model.bias.zero_()
    fit = pt.posterior(model, (x, y), pt.GaussianNoise(), progress=False)
    assert 0.26 < fit.likelihood.value**-0.5 < 0.34
    assert (fit.predict(x).variance > fit.predict(x).aleatoric).all()


def test_a_prior_needs_inputs_alone():
    model, x, _ = trained(300)
    made = pt.prior(model, x, floor=2.0, progress=False, generator=torch.Generator().manual_seed(0))
    for name, mean in made.mean.items():
        assert torch.equal(mean[:, :-1], model.get_submodule(name).weight.detach())
        assert made.precision[name].floor == 2.0
    by_hand = pt.estimate(
        model,
        (x, torch.zeros(300, dtype=torch.int64)),
        pt.EKFAC(),
        generator=torch.Generator().manual_seed(0),
        progress=False,
    )
    torch.testing.assert_close(
        made.precision["0"].dense() - 2.0 * torch.eye(120, dtype=torch.float64), by_hand["0"].dense()
    )
    larger = pt.prior(model, x, floor=2.0, population=3000, progress=False, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        larger.precision["0"].curvature.dense(), 10 * made.precision["0"].curvature.dense(), rtol=1e-9, atol=1e-9
    )


def test_labels_of_ones_own_are_refused_for_a_prior_without_labels():
    model, x, _ = trained(50)
    with pytest.raises(BadData, match="Sampled"):
        pt.prior(model, x, estimator=pt.EKFAC(pt.curvature.EmpiricalLabels()), progress=False)


def test_a_prior_writes_its_mean_into_a_network():
    model, x, _ = trained(50)
    made = pt.prior(model, x, progress=False)
    other = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 3))
    made.write_to(other)
    torch.testing.assert_close(other(x), model(x))


def test_a_posterior_that_has_seen_its_data_is_consistent_and_one_that_has_not_is_wider():
    model, x, y = trained(200)
    fit = pt.posterior(model, (x, y), progress=False)
    seen = pt.metrics.consistency(model, fit.posterior, (x, y))
    unseen = pt.metrics.consistency(model, fit.prior.adjusted(floor=1e-3), (x, y))
    assert 0 < seen < unseen
    assert unseen > 1
