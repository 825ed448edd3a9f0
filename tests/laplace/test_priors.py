"""The prior before any prior, and the prior of another task's network."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import BlockMismatch
from posterity.laplace import fitted


def network(classes: int = 3, features: int = 4, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(features, 5, bias=bias), nn.Tanh(), nn.Linear(5, classes))


def test_an_isotropic_prior_has_one_precision_around_zero_the_model_or_what_is_given():
    model = network()
    zero, here = pt.isotropic(model, 2.0), pt.isotropic(model, 2.0, mean="model")
    given = pt.isotropic(model, 2.0, mean={name: torch.ones_like(m) for name, m in zero.mean.items()})
    assert not any(m.any() for m in zero.mean.values())
    assert torch.equal(here.mean["0"], torch.cat((model[0].weight, model[0].bias[:, None]), 1))
    assert all((m == 1).all() for m in given.mean.values())
    for prior in (zero, here, given):
        assert torch.equal(prior.precision["2"].dense(), 2.0 * torch.eye(18, dtype=torch.float64))
    with torch.no_grad():
        model[0].weight.zero_()
    assert here.mean["0"].any()  # a copy, not a view of what is trained on


@pytest.mark.parametrize("precision", [0.0, -1.0, float("nan")])
def test_a_precision_that_is_none_is_refused(precision):
    with pytest.raises(ValueError, match="a prior precision is positive"):
        pt.isotropic(network(), precision)


def test_a_mean_that_is_none_is_refused():
    with pytest.raises(BlockMismatch, match=r"no matrix for the blocks \['2'\]"):
        pt.isotropic(network(), mean={"0": torch.zeros(5, 5)})
    with pytest.raises(BlockMismatch, match='block "0" has a mean of 2×2 and a precision over 5×5'):
        pt.isotropic(network(), mean={"0": torch.zeros(2, 2), "2": torch.zeros(3, 6)})


def test_a_new_head_gets_an_isotropic_prior_by_itself_and_says_so(caplog):
    learned = pt.isotropic(network(3), 7.0, mean="model")
    with caplog.at_level(logging.INFO, "posterity"):
        prior = fitted(learned, network(10), head_precision=0.5)
    assert caplog.messages == ['block "2" is a new head: isotropic prior around zero, precision 0.5']
    assert prior.blocks == ("0", "2")
    assert prior.mean["0"] is learned.mean["0"]
    assert not prior.mean["2"].any()
    assert torch.equal(prior.precision["2"].dense(), 0.5 * torch.eye(60, dtype=torch.float64))


def test_a_head_of_the_same_size_is_kept_without_a_word(caplog):
    learned = pt.isotropic(network(3), 7.0, mean="model")
    with caplog.at_level(logging.INFO, "posterity"):
        prior = fitted(learned, network(3))
    assert not caplog.messages
    assert prior.mean == learned.mean


def test_training_and_learning_on_a_new_head_just_work(caplog):
    learned = pt.isotropic(network(3), 7.0, mean="model")
    x, y = torch.randn(20, 4), torch.randint(0, 10, (20,))
    with caplog.at_level(logging.INFO, "posterity"):
        pt.train(network(10), (x, y), learned, epochs=1, progress=False)
        fit = pt.learn(network(10), (x, y), learned, training={"epochs": 1}, progress=False)
    assert sum("is a new head" in message for message in caplog.messages) == 2
    assert fit.posterior.precision["2"].shape == (10, 6)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            network(),
            network(bias=False),
            'block "0" is 5×5 in the prior and 5×4 in the model: the model\'s layer has no bias. Refit the prior, or drop the '
            'block with prior.without("0").',
        ),
        (
            network(),
            network(features=6),
            'block "0" is 5×5 in the prior and 5×7 in the model. Refit the prior, or drop the block with prior.without("0").',
        ),
        (
            network(),
            nn.Sequential(nn.Linear(4, 3)),
            "the prior has blocks ['2'] that the model has not (its blocks are ['0']): drop them with prior.without('2').",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3)),
            nn.ModuleDict({"body": nn.Conv2d(1, 2, 3)}),
            "the prior has blocks ['0'] that the model has not (its blocks are []): drop them with prior.without('0').",
        ),
    ],
    ids=["no bias", "other inputs", "fewer layers", "nothing in common"],
)
def test_a_prior_of_another_network_is_refused(before, after, message):
    # A head of another size is no mismatch: the third network's only layer is one.
    with pytest.raises(BlockMismatch) as caught:
        fitted(pt.isotropic(before), after)
    assert str(caught.value) == message


def test_a_frozen_layer_wants_no_prior():
    model = network()
    prior = pt.isotropic(model)
    model[0].requires_grad_(False)
    with pytest.raises(BlockMismatch, match=r"prior\.without\('0'\)"):
        fitted(prior, model)
    assert fitted(prior.without("0"), model).blocks == ("2",)
