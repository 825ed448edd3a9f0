"""Weights are drawn in one way, whatever the structure: whole matrices, or what they make of an input."""

from __future__ import annotations

import pytest
import torch
from gaussians import EVERY, normal

import posterity as pt
from posterity.gaussian.spread import Spread

DRAWS = 100_000
every_structure = pytest.mark.parametrize("structure", EVERY)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@every_structure
def test_the_noise_of_an_input_has_the_covariance_that_drawn_weights_give_it(structure):
    precision, a = EVERY[structure](2, 3, 0), normal(3, seed=4)
    spread = Spread.of(normal(2, 3), precision)
    found = spread.noise(a.expand(DRAWS, 3), seeded())
    along = torch.kron(torch.eye(2, dtype=torch.float64), a[None, :])
    expected = along @ torch.linalg.inv(precision.dense()) @ along.mT
    largest = expected.diagonal().max()
    # Five standard errors of a mean and of a covariance entry.
    assert found.mean(0).abs().max() < 5 * (largest / DRAWS).sqrt()
    assert (found.T @ found / DRAWS - expected).abs().max() < 5 * largest * (2 / DRAWS) ** 0.5


@every_structure
def test_repeats_of_a_row_stand_together_and_differ(structure):
    spread = Spread.of(normal(2, 3), EVERY[structure](2, 3, 0))
    found = spread.noise(torch.stack((torch.zeros(3).double(), normal(3))), seeded(), repeats=4)
    assert found.shape == (8, 2)
    assert found[:4].abs().max() < 1e-100
    assert len(found[4:, 0].unique()) == 4


@every_structure
def test_draws_are_those_of_the_matrix_with_the_same_seed(structure):
    mean, precision = normal(2, 3), EVERY[structure](2, 3, 0)
    drawn = Spread.of(mean, precision).draw(5, seeded())
    torch.testing.assert_close(drawn, mean + precision.sample(5, generator=seeded()), rtol=1e-12, atol=1e-12)


@every_structure
def test_draws_come_in_the_precision_that_is_asked_for(structure):
    spread = Spread.of(normal(2, 3), EVERY[structure](2, 3, 0), torch.zeros((), dtype=torch.float32))
    assert spread.draw(3, seeded()).dtype == torch.float32


def test_the_gibbs_risk_of_a_dense_posterior_is_that_of_networks_drawn_from_it():
    model = torch.nn.Linear(2, 2).double()
    x, y = normal(40, 2, seed=1), (normal(40, seed=2) > 0).long()
    prior = pt.isotropic(model)
    posterior = pt.Gaussian(prior.mean, {name: EVERY["dense"](*m.shape, 3) for name, m in prior.mean.items()})
    found = pt.pacbayes.gibbs_risk(model, posterior, (x, y), passes=500, generator=seeded(), progress=False)
    (weights,) = posterior.sample(20_000, generator=seeded(1)).values()
    outputs = x @ weights[:, :, :2].mT + weights[:, None, :, 2]
    expected = (outputs.argmax(-1) != y).double().mean()
    assert abs(found.error - float(expected)) < 5 * (0.25 / found.count + 0.25 / 20_000) ** 0.5
