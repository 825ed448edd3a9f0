"""Fits of the fewest examples there can be: one in all, one group, labels of any whole type."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


def examples(each: int) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.arange(3).repeat(each)
    return torch.randn(len(y), 4, generator=torch.Generator().manual_seed(0)) + 2 * y[:, None], y


@pytest.fixture(scope="module")
def prior() -> pt.Gaussian:
    return pt.learn(network(), examples(20), progress=False, training={"epochs": 10}).posterior


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_of_any_whole_type_are_the_same_labels(prior: pt.Gaussian, dtype: torch.dtype) -> None:
    x, y = examples(2)
    whole = pt.adapt(network(), (x, y), prior, head="keep", progress=False).predict(x).probs
    other = pt.adapt(network(), (x, y.to(dtype)), prior, head="keep", progress=False).predict(x).probs
    assert torch.equal(whole, other)


@pytest.mark.parametrize("head", ["keep", "new"])
def test_one_group_leaves_nothing_out_and_the_strength_is_set_in_advance(prior: pt.Gaussian, head: str) -> None:
    x, y = examples(2)
    fit = pt.adapt(network(), (x, y), prior, head=head, groups=torch.zeros(6).long(), progress=False)
    assert fit.choice is not None
    assert fit.choice.criterion == "fixed"
    assert fit.predict(x).probs.isfinite().all()


def test_one_example_of_yes_and_no_is_enough() -> None:
    x = examples(1)[0]
    first = pt.learn(network(1), (x, torch.ones(3, 1)), likelihood=pt.Bernoulli(), progress=False).posterior
    one = (x[:1], torch.ones(1, 1))
    assert (
        pt.adapt(network(1), one, first, pt.Bernoulli(), head="keep", progress=False).predict(x).probs.isfinite().all()
    )


def test_one_example_of_a_regression_is_enough() -> None:
    x = examples(1)[0]
    fit = pt.learn(network(1), (x[:1], x[:1, :1]), likelihood=pt.GaussianNoise(), progress=False)
    assert fit.predict(x).mean.isfinite().all()


def test_a_last_layer_tells_that_its_strength_was_set_in_advance_and_refuses_groups_that_do_not_fit() -> None:
    x, y = examples(1)
    fit = pt.posterior(network(), (x, y), blocks=["2"], progress=False)
    assert fit.choice is not None
    assert fit.choice.criterion == "fixed"
    assert fit.choice.strengths > 1  # by the inputs' size: certificates pay
    with pytest.raises(pt.errors.BadData, match="groups has 2 numbers"):
        pt.posterior(network(), (x, y), blocks=["2"], groups=torch.arange(2), progress=False)


def apart(each: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes that one example tells apart."""
    y = torch.arange(3).repeat(each)
    noise = torch.randn(len(y), 4, generator=torch.Generator().manual_seed(seed))
    return 0.5 * noise + 3 * nn.functional.one_hot(y, 4), y


@pytest.mark.parametrize("head", ["keep", "new"])
def test_one_example_a_class_is_learned_from(head: str) -> None:
    """Where a class is left out with its only example, everything looks unpredictable: such fits said next to nothing."""
    model, one, (new, labels) = network(), apart(1, 1), apart(30, 2)
    prior = pt.learn(model, apart(20, 0), progress=False).posterior
    for fit in (
        pt.adapt(network(), one, prior, head=head, progress=False),
        pt.posterior(model, one, blocks=["2"], progress=False),
    ):
        assert pt.metrics.score(fit.predict(new).probs, labels).nll < 0.4  # chance is 1.10


def pictures(each: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes of small pictures: a bright row each, and noise."""
    y = torch.arange(3).repeat(each)
    x = 0.3 * torch.randn(len(y), 1, 6, 6, generator=torch.Generator().manual_seed(1))
    x[torch.arange(len(y)), 0, 2 * y] += 1
    return x, y


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 3),
    )


@pytest.mark.parametrize("each", [1, 2, 3])
def test_from_scratch_a_few_examples_of_each_class_are_learned_from(each: int) -> None:
    """Under a prior of precision 1 the weights of a deep network went to zero, and it said the same of all inputs."""
    fit = pt.learn(convolutional(), pictures(each), progress=False)
    x, y = pictures(100)
    assert pt.metrics.score(fit.predict(x).probs, y).accuracy > 0.8
    for matrix in fit.prior.precision.values():
        assert float(matrix.trace()) == pytest.approx(matrix.size * 3 * each / 100)


def test_a_prior_that_is_given_stays_as_it_is_and_a_hundred_examples_have_the_usual_one() -> None:
    given = pt.isotropic(convolutional(), 1.0)
    few = pt.learn(convolutional(), pictures(2), prior=given, progress=False, training={"epochs": 1}).prior
    many = pt.learn(convolutional(), pictures(40), progress=False, training={"epochs": 1}).prior
    for prior in (few, many):
        assert all(float(matrix.trace()) == matrix.size for matrix in prior.precision.values())


def test_one_example_a_class_from_scratch_has_a_temperature_set_in_advance() -> None:
    fit = pt.learn(convolutional(), pictures(1), progress=False)
    x = pictures(5)[0]
    with torch.no_grad():
        expected = (fit.model(x) / 2).softmax(-1)
    torch.testing.assert_close(fit.predict(x).probs, expected, rtol=1e-5, atol=1e-6)
