"""Networks with an output for each token: what takes them does, and what cannot says so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import posterity as pt
from posterity.errors import BadData, UnsupportedNetwork


def tagger() -> nn.Module:
    """Two classes for each of five tokens, which are numbers here."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batches(count: int = 4) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 6, 5, 3, generator=generator)
    return [(part, (part[..., 0] > 0).long()) for part in x]


def test_adapt_says_that_it_takes_one_row_of_outputs_and_not_that_two_dozen_examples_are_too_many():
    prior = pt.prior(tagger(), batches()[0][0], progress=False)
    with pytest.raises(UnsupportedNetwork, match=r"output for each token: use `pt\.learn"):
        pt.adapt(tagger(), batches(), prior, progress=False)


def test_learn_takes_a_list_of_batches_and_holds_whole_ones_out():
    prior = pt.prior(tagger(), batches()[0][0], progress=False)
    fit = pt.learn(tagger(), batches(), prior=prior, progress=False, training={"epochs": 2})
    assert fit.curvature.count == 18  # one batch of four decided when to stop
    assert fit.predict(batches()[0][0], method="sampled", samples=3).probs.shape == (6, 5, 2)


def test_data_that_cannot_be_split_says_how_to_hold_nothing_out():
    class Endless:
        def __iter__(self):
            return iter(batches())

    with pytest.raises(BadData, match="validation=0 to hold nothing out"):
        pt.learn(tagger(), Endless(), progress=False, training={"epochs": 1})
    fit = pt.learn(tagger(), Endless(), validation=0, progress=False, training={"epochs": 1})
    assert fit.curvature.count == 24
