"""What a prediction says of itself, and what asking for one leaves alone."""

from __future__ import annotations

import pytest
import torch
from curvature_cases import case
from test_linearised import gaussian
from test_model_untouched import assert_untouched, prepared, snapshot
from torch import Tensor, nn

import posterity as pt
from posterity.errors import BadData
from posterity.predictive.prediction import from_outputs

METHODS = [{"method": "sampled"}, {"method": "linearised"}, {"method": "linearised", "link": "sampled"}]
by_method = pytest.mark.parametrize("options", METHODS, ids=["sampled", "probit", "sampled link"])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@by_method
@pytest.mark.parametrize("likelihood", [pt.Categorical(), pt.Bernoulli()], ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_entropy_is_what_the_data_and_the_weights_leave_open(options, likelihood, scale):
    it = case("conv")
    found = pt.predict(
        it.model, gaussian(it.model, "kronecker", scale), it.x, likelihood, generator=seeded(), **options
    )
    p = found.probs
    expected = (
        -(p * p.log()).sum(-1) if isinstance(likelihood, pt.Categorical) else torch.distributions.Bernoulli(p).entropy()
    )
    torch.testing.assert_close(found.entropy, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.entropy, found.aleatoric + found.epistemic)
    assert found.mutual_information is found.epistemic
    assert (found.epistemic >= 0).all()
    assert (found.aleatoric >= 0).all()
    assert found.epistemic.mean() > 1e-6


def test_by_hand():
    """Two draws that are sure of opposite answers: all uncertainty is about the weights, none about the data."""
    sure = torch.tensor([[[100.0, 0.0]], [[0.0, 100.0]]])
    found = from_outputs(sure, pt.Categorical(), sure.mean(0), keep=False)
    assert torch.allclose(found.probs, torch.full((1, 2), 0.5))
    assert found.epistemic.item() == pytest.approx(torch.log(torch.tensor(2.0)).item(), rel=1e-6)
    assert found.aleatoric.item() == pytest.approx(0, abs=1e-6)
    unsure = torch.zeros(2, 1, 2)
    found = from_outputs(unsure, pt.Categorical(), unsure.mean(0), keep=False)
    assert found.epistemic.item() == 0
    assert found.aleatoric.item() == pytest.approx(torch.log(torch.tensor(2.0)).item(), rel=1e-6)


def test_probabilities_of_zero_have_no_entropy_and_no_nan():
    certain = torch.tensor([[[1e4, -1e4, 0.0]]]).repeat(3, 1, 1)
    for likelihood in (pt.Categorical(), pt.Bernoulli()):
        found = from_outputs(certain[..., :2], likelihood, certain[0, :, :2], keep=False)
        assert torch.equal(found.entropy, torch.zeros_like(found.entropy))


def test_a_regression_has_variances_and_no_probabilities():
    it = case("one output")
    found = pt.predict(
        it.model, gaussian(it.model, "identity"), it.x, pt.GaussianNoise(4.0), method="sampled", keep_draws=True
    )
    torch.testing.assert_close(found.mean, found.draws.mean(0))
    torch.testing.assert_close(found.epistemic, found.draws.var(0, correction=0))
    torch.testing.assert_close(found.variance, found.draws.var(0, correction=0) + 0.25)
    with pytest.raises(BadData, match=r"use \.mean and \.variance"):
        _ = found.probs
    with pytest.raises(BadData, match=r"use \.mean and \.variance"):
        _ = found.labels


def test_draws_are_kept_only_if_asked_for():
    it = case("mlp")
    posterior = gaussian(it.model, "identity")
    for options in METHODS:
        assert pt.predict(it.model, posterior, it.x, **options).draws is None
        assert pt.predict(it.model, posterior, it.x, samples=6, keep_draws=True, **options).draws.shape == (6, 7, 3)


@by_method
@pytest.mark.parametrize("name", ["conv", "norms", "encoder"])
def test_the_batch_size_does_not_matter(name, options):
    it = case(name)
    posterior = gaussian(it.model, "kronecker")
    whole, *others = (
        pt.predict(it.model, posterior, it.x, samples=5, batch_size=size, generator=seeded(), **options)
        for size in (7, 1, 3, 1000)
    )
    for other in others:
        for part in ("probs", "epistemic", "aleatoric", "logits"):
            torch.testing.assert_close(getattr(other, part), getattr(whole, part), rtol=1e-9, atol=1e-9)


@by_method
@pytest.mark.parametrize("name", ["mlp", "conv", "shared", "norms", "encoder"])
def test_the_model_is_untouched(name, options):
    model = prepared(name)
    posterior = gaussian(model, "kronecker")
    before = snapshot(model)
    pt.predict(model, posterior, case(name).x, samples=3, **options)
    assert_untouched(before, model)


class Stateful(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if bool((x > 1e6).any()):
            raise RuntimeError("stumbled")
        return super().forward(x)


@by_method
def test_a_buffer_the_network_writes_into_is_untouched_also_after_an_error(options):
    model = Stateful().train()
    pt.predict(model, pt.isotropic(model), torch.randn(2, 4), **options)
    with pytest.raises(RuntimeError, match="stumbled"):
        pt.predict(model, pt.isotropic(model), torch.full((2, 4), 1e7), **options)
    assert model.calls == 0
    assert all(m.training for m in model.modules())


@by_method
def test_one_seed_one_prediction(options):
    it = case("mlp")
    posterior = gaussian(it.model, "kronecker")
    first, again, other = (pt.predict(it.model, posterior, it.x, generator=seeded(s), **options) for s in (0, 0, 1))
    assert torch.equal(first.epistemic, again.epistemic)
    assert torch.equal(first.probs, again.probs)
    assert not torch.equal(first.epistemic, other.epistemic)


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, first: Tensor, second: Tensor, factor: float = 1.0) -> Tensor:
        return self.a(first) + factor * self.b(second)


@by_method
def test_inputs_may_come_by_name(options):
    model = ByName().double()
    x = {"first": torch.randn(7, 4).double(), "second": torch.randn(7, 2).double(), "factor": 2.0}
    posterior = pt.isotropic(model, 1e20, mean="model")
    found = pt.predict(model, posterior, x, samples=2, batch_size=3, **options)
    torch.testing.assert_close(found.probs, model(**x).softmax(-1), rtol=1e-7, atol=1e-7)
    with pytest.raises(BadData, match=r"have \[3, 7\] examples"):
        pt.predict(model, posterior, x | {"first": x["first"][:3]}, **options)


@by_method
def test_there_must_be_something_to_predict(options):
    model = nn.Linear(4, 3)
    for nothing in (torch.zeros(0, 4), {"input": torch.zeros(0, 4)}):
        with pytest.raises(BadData, match="no input"):
            pt.predict(model, pt.isotropic(model), nothing, **options)


@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@by_method
def test_it_works_wherever_it_is_called_and_leaves_no_graph(options, surroundings):
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    posterior = pt.isotropic(model, mean="model")
    with surroundings():
        found = pt.predict(model, posterior, torch.randn(3, 4), samples=2, **options)
    assert not any(getattr(found, part).requires_grad for part in ("probs", "epistemic", "logits"))


def test_choices_that_do_not_exist_are_refused():
    model = nn.Linear(4, 3)
    with pytest.raises(ValueError, match="samples is at least 1"):
        pt.predict(model, pt.isotropic(model), torch.randn(2, 4), samples=0)
