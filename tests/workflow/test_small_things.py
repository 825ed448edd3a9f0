"""Small things that users meet: pairs with inputs by name, one logit, options in the wrong place, networks that know nothing."""

from __future__ import annotations

import math

import pytest
import torch
from outcomes import network, numbers, points, trained
from torch import Tensor, nn

import posterity as pt
from posterity.curvature.likelihoods import NoisePerInput
from posterity.errors import BadData, NotTrained, UnsupportedNetwork, WrongChoice
from posterity.predictive.exact import LastLayer


class Named(nn.Module):
    """Takes its input by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        return self.fc(values)


def test_inputs_by_name_and_targets_are_a_pair() -> None:
    x, y = points(0)
    fit = pt.learn(Named(), ({"values": x}, y), progress=False)
    assert fit.predict({"values": x}).probs.shape == (24, 3)
    assert fit.posterior.provenance.count == 24
    with pytest.raises(BadData, match="must pair up"):
        pt.learn(Named(), ({"values": x[:20]}, y), progress=False)


def test_one_logit_with_labels_names_the_likelihood_for_it() -> None:
    x, y = points(0, classes=2)
    with pytest.raises(UnsupportedNetwork, match=r"pt\.Bernoulli\(\)"):
        pt.learn(network(0, 1), (x, y), progress=False)


def test_options_of_training_are_sent_to_their_place() -> None:
    with pytest.raises(WrongChoice, match=r"training=\{\"epochs\": 5\}"):
        pt.learn(network(0), points(0), epochs=5)
    with pytest.raises(WrongChoice, match="no option scale="):
        pt.adapt(network(0), points(0), pt.isotropic(network(0)), scale=1)


def test_only_the_layers_named_learn() -> None:
    model = network(0)
    before = model[0].weight.clone()  # type: ignore[union-attr, operator]
    fit = pt.learn(model, points(0), blocks=["2"], progress=False)
    assert fit.posterior.blocks == ("2",)
    assert torch.equal(model[0].weight, before)  # type: ignore[arg-type]
    assert all(p.requires_grad for p in model.parameters())


def test_a_network_that_knows_nothing_is_refused_and_one_new_layer_is_fitted() -> None:
    data = points(0, 200)
    with pytest.raises(NotTrained, match=r"pt\.learn"):
        pt.posterior(network(0), data, progress=False)
    pt.posterior(trained(0), data, progress=False)
    torch.manual_seed(0)
    fit = pt.posterior(nn.Linear(4, 3), data, progress=False)
    assert isinstance(fit.predictor, LastLayer)
    assert pt.metrics.score(fit.predict(data[0]).probs, data[1]).accuracy > 0.8


def test_an_option_of_no_consequence_changes_nothing() -> None:
    fit = pt.learn(network(0), points(0), progress=False)
    x = points(5)[0]
    for options in ({"batch_size": 7}, {"samples": 50}, {"link": "probit"}, {"keep_draws": True}):
        torch.testing.assert_close(fit.predict(x, **options).probs, fit.predict(x).probs, rtol=0, atol=1e-6)  # type: ignore[arg-type]
    assert fit.predict(x, keep_draws=True).draws.shape == (100, 24, 3)  # type: ignore[union-attr]


def test_a_method_that_is_not_possible_is_named_beside_those_that_are() -> None:
    with pytest.raises(WrongChoice, match='"one network"'):
        pt.learn(network(0), points(0), method="exact around the prior", progress=False)
    fit = pt.learn(network(0), points(0), method="one network", progress=False)
    assert fit.plan.ways == ("one network",)


def test_noise_that_depends_on_the_input_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(300, 1, generator=generator) - 2
    width = 0.05 + 0.3 * (x + 2) / 4
    y = x.sin() + width * torch.randn(300, 1, generator=generator)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 2))
    fit = pt.learn(model, (x, y), likelihood=pt.GaussianNoise(per_input=True), progress=False)
    found = fit.predict(x)
    assert found.mean.shape == (300, 1)
    ratio = (found.aleatoric.sqrt() / width).log().abs().mean()
    assert float(ratio) < 0.25
    best = (0.5 * ((y - x.sin()) / width).square() + width.log() + 0.5 * math.log(2 * math.pi)).mean()
    nll = 0.5 * ((y - found.mean).square() / found.variance + (2 * math.pi * found.variance).log()).mean()
    assert abs(float(nll - best)) < 0.1


def test_the_fisher_information_of_noise_per_input_is_that_of_its_residuals() -> None:
    likelihood, generator = pt.GaussianNoise(per_input=True), torch.Generator().manual_seed(0)
    assert isinstance(likelihood, NoisePerInput)
    outputs = torch.tensor([[0.3, -0.5, 0.4, -1.0]], dtype=torch.float64).expand(200_000, 4)
    drawn = likelihood.sampled_residual(outputs, outputs[:, :2], generator)
    root = likelihood.fisher_root(outputs[:1])[0]
    torch.testing.assert_close(drawn.mT @ drawn / len(drawn), root @ root.mT, rtol=0.05, atol=0.02)
    x, y = numbers(0)
    f = torch.randn(24, 2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(likelihood.nll(f, y.double()), f)
    torch.testing.assert_close(likelihood.residual(f, y.double()), slope)
    assert len(x) == 24
