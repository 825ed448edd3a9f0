"""Randomness is an argument: same seed, same bits."""

from __future__ import annotations

import pytest
import torch
from curvature_cases import case, data

from posterity.curvature import (
    EKFAC,
    KFAC,
    KFOC,
    Bernoulli,
    Categorical,
    Dense,
    ExactLabels,
    GaussianNoise,
    SampledLabels,
    estimate,
)

SAMPLED = [KFAC(), KFOC(), EKFAC(), Dense(), KFAC(SampledLabels(3))]


def run(estimator, likelihood=None, generator=None, name="conv"):
    likelihood = likelihood or Categorical()
    given = data(name, likelihood)
    return estimate(case(name).model, given, estimator, likelihood, batch_size=3, generator=generator, progress=False)


def same(a, b) -> bool:
    return all(torch.equal(matrix.dense(), b[block].dense()) for block, matrix in a.blocks.items())


@pytest.mark.parametrize("likelihood", [Categorical(), GaussianNoise(), Bernoulli()], ids=str)
@pytest.mark.parametrize("estimator", SAMPLED, ids=str)
def test_the_same_seed_gives_the_same_bits_and_another_other_ones(estimator, likelihood):
    first, again, other = (run(estimator, likelihood, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("estimator", SAMPLED, ids=str)
def test_without_a_generator_the_global_seed_decides(estimator):
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(run(estimator))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])
    assert not same(results[2], run(estimator))


@pytest.mark.parametrize("estimator", SAMPLED, ids=str)
def test_the_users_generator_advances_and_the_global_one_does_not(estimator):
    generator = torch.Generator().manual_seed(3)
    start, everywhere = generator.get_state(), torch.get_rng_state()
    first = run(estimator, generator=generator)
    assert not torch.equal(generator.get_state(), start)
    assert torch.equal(torch.get_rng_state(), everywhere)
    assert not same(first, run(estimator, generator=generator))


def test_exact_labels_use_no_randomness():
    assert same(run(KFAC(ExactLabels()), generator=torch.Generator().manual_seed(1)), run(KFAC(ExactLabels())))
