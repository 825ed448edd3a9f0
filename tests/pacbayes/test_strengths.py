"""Strengths of a prior that are learned on the certifying data: from a grid, exact, and paid for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.data.provenance import Provenance
from posterity.errors import NotExact, UnknownPast
from posterity.pacbayes.certify import divergence
from posterity_studies.shared.strengths import FACTORS, _Adjustable, optimise_strengths


def coins(seed: int, n: int = 120):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    return x, (x[:, 0] + 0.3 * torch.randn(n, generator=generator) > 0).long()


@pytest.fixture(scope="module")
def learned():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    return model, pt.learn(model, coins(1), training={"epochs": 20, "lr": 0.02}, progress=False).posterior


@pytest.fixture(scope="module")
def found(learned):
    model, prior = learned
    dice = torch.Generator().manual_seed(0)
    return optimise_strengths(
        model, prior, prior, coins(2), epochs=8, lr=0.01, lr_scales=0.3, batch_size=30, generator=dice, progress=False
    )


def test_the_divergence_that_is_made_small_is_the_one_that_is_certified(learned, found):
    model, prior = learned
    for name in prior.blocks:
        block = _Adjustable(found.posterior, prior, name, next(model.parameters()))
        share, floor = found.factors[name]
        with torch.no_grad():
            block.logs.copy_(torch.tensor([share, floor], dtype=torch.float64).log())
        assert float(block.kl().detach()) == pytest.approx(divergence(found.posterior, found.prior)[name], rel=1e-4)


def test_strengths_are_of_the_grid_and_not_all_as_they_were(found):
    assert all(factor in FACTORS for pair in found.factors.values() for factor in pair)
    assert any(pair != (1.0, 1.0) for pair in found.factors.values())


def test_a_certificate_pays_for_every_combination(learned, found):
    model, _ = learned
    dice = torch.Generator().manual_seed(0)
    made = pt.certify(model, found.posterior, found.prior, coins(2), generator=dice, progress=False)
    assert made.payments == (("each layer's strength", len(FACTORS) ** 4),)
    other = pt.certify(model, found.posterior, found.prior, coins(3), generator=dice, progress=False)
    assert other.payments == ()  # the strengths were not chosen by these


def test_the_posterior_has_seen_the_data_and_the_prior_has_not(learned, found):
    model, prior = learned
    assert found.prior.provenance.count == prior.provenance.count
    with pytest.raises(pt.errors.Overlap):
        pt.certify(model, found.posterior, found.posterior, coins(2), progress=False)


def test_a_prior_of_unknown_past_stays_unknown(learned):
    model, prior = learned
    unknown = prior.with_provenance(Provenance.unknown("a stranger's"))
    dice = torch.Generator().manual_seed(0)
    found = optimise_strengths(model, unknown, unknown, coins(2), epochs=2, generator=dice, progress=False)
    with pytest.raises(UnknownPast):
        pt.certify(model, found.posterior, found.prior, coins(2), progress=False)


def test_a_grid_of_one_leaves_the_prior_as_it_is(learned):
    model, prior = learned
    dice = torch.Generator().manual_seed(0)
    found = optimise_strengths(
        model, prior, prior, coins(2), factors=(1.0,), epochs=2, lr_scales=0.5, generator=dice, progress=False
    )
    kl = sum(float(v) for v in found.prior.kl_by_block(prior).values())
    assert kl == pytest.approx(0.0, abs=1e-6)
    assert found.prior.provenance.choices == prior.provenance.choices


@pytest.mark.parametrize(
    ("options", "says"),
    [({"factors": ()}, "at least one"), ({"factors": (0.0, 1.0)}, "positive"), ({"epochs": 1}, "at least 2")],
)
def test_grids_that_are_none_are_refused(learned, options, says):
    model, prior = learned
    with pytest.raises(ValueError, match=says):
        optimise_strengths(model, prior, prior, coins(2), progress=False, **options)


def test_a_prior_without_an_eigenframe_is_refused(learned):
    model, prior = learned
    flat = replace(pt.isotropic(model, 1.0), mean=prior.mean)
    with pytest.raises(NotExact, match="optimise_posterior"):
        optimise_strengths(model, flat, flat, coins(2), progress=False)
