"""Leave-one-out from one posterior against refitting without the example."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small import Problem

import posterity as pt
from posterity.data.leave_out import LeaveOut
from posterity.errors import InconsistentPosterior
from posterity.kernel import (
    Calibration,
    Strength,
    StrengthMember,
    averaged,
    calibrate,
    choose,
    choose_noise,
    downdate,
)
from posterity.kernel.choose import FLOORS, TAUS, TEMPERATURES
from posterity.kernel.noise import NOISES


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_it_equals_refitting_for_gaussian_noise(kind, outputs):
    problem = Problem(kind, outputs, 9, pt.GaussianNoise(2.0))
    posterior = problem.linearised.posterior(None)
    closed, refitted = posterior.left_out(), posterior.refitted(torch.arange(9))
    torch.testing.assert_close(closed.mean, refitted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(closed.covariance, refitted.covariance, rtol=1e-8, atol=1e-8)


def test_groups_left_out_together_equal_refitting_without_them():
    problem = Problem("dense", 2, 9, pt.GaussianNoise(2.0))
    groups = torch.tensor([0, 0, 1, 2, 2, 2, 3, 1, 4])
    posterior = problem.linearised.posterior(None)
    closed, refitted = posterior.left_out(groups), posterior.refitted(groups)
    torch.testing.assert_close(closed.mean, refitted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(closed.covariance, refitted.covariance, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shared", [False, True])
def test_for_classes_it_is_close_to_refitting_beside_its_differences_between_strengths(shared):
    problem = Problem("dense", 3, 24, pt.Categorical(), seed=3, shared=shared)
    errors, values = [], []
    for floor in (0.1, 1.0, 10.0):
        posterior = problem.linearised.posterior(Strength(0.3, floor, floor))
        plain = Calibration(1.0, 1.0)
        closed = posterior.left_out().nll(problem.likelihood, problem.targets, plain)
        refitted = posterior.refitted(torch.arange(24)).nll(problem.likelihood, problem.targets, plain)
        errors.append(abs(closed - refitted))
        values.append(refitted)
    assert max(errors) < 0.5 * (max(values) - min(values))
    assert max(errors) < 0.05


def test_a_posterior_wider_than_its_data_allows_is_refused():
    with pytest.raises(InconsistentPosterior, match="largest eigenvalue"):
        downdate(torch.eye(2, dtype=torch.float64)[None] * 5, torch.eye(2, dtype=torch.float64)[None] * 0.5)


def test_the_exact_posterior_is_consistent_at_every_training_example():
    problem = Problem("convolutional", 3, 12, pt.Categorical())
    posterior = problem.linearised.posterior(Strength(0.0, 1e-3))
    s = posterior.latent.blocks(torch.arange(12)[:, None])
    root = problem.likelihood.fisher_root(posterior.latent.outputs)
    assert float(torch.linalg.eigvalsh(root.mT @ s @ root).max()) < 1


def test_width_and_softness_come_from_the_grid_and_never_below_a_temperature_of_one():
    problem = Problem("dense", 3, 12, pt.Categorical())
    left_out = problem.linearised.posterior(None).left_out()
    calibration, nll, options = calibrate(left_out, problem.likelihood, problem.targets)
    assert calibration.temperature >= 1
    assert options == len(TAUS) * len(TEMPERATURES)
    for tau in (0.0, 0.1, 1.0):
        assert nll <= left_out.nll(problem.likelihood, problem.targets, Calibration(tau, 1.0)) + 1e-12


def test_the_noise_of_a_regression_is_found():
    torch.manual_seed(0)
    problem = Problem("dense", 1, 200, pt.GaussianNoise())
    j = problem.dense_jacobian(problem.x)[:, 0]
    draw = torch.linalg.solve_triangular(
        torch.linalg.cholesky(problem.dense_precision()).mT,
        torch.randn(j.shape[1], 1, dtype=torch.float64),
        upper=True,
    )
    clean = problem.linearised.start() + j @ draw
    targets = clean + 0.1 * torch.randn_like(clean)
    found = choose_noise(problem.linearised.kernel, problem.linearised.train, problem.linearised.start(), targets)
    assert 0.07 < found.precision**-0.5 < 0.14
    assert found.options == 5 * 13 * len(NOISES)


def test_the_closed_form_of_the_noise_search_is_leave_one_out():
    problem = Problem("dense", 1, 12, pt.GaussianNoise())
    found = choose_noise(
        problem.linearised.kernel, problem.linearised.train, problem.linearised.start(), problem.targets
    )

    likelihood = pt.GaussianNoise(found.precision)
    posterior = replace(problem.linearised, likelihood=likelihood).posterior(found.strength)
    nll = posterior.left_out().nll(likelihood, problem.targets, Calibration())
    assert nll == pytest.approx(found.nll, abs=1e-8)


def test_the_choice_is_an_average_whose_weights_follow_what_was_left_out():
    problem = Problem("dense", 3, 20, pt.Categorical())
    choice = choose(problem.linearised)
    assert sum(m.weight for m in choice.members) == pytest.approx(1.0)
    assert [m.weight for m in choice.members] == sorted((m.weight for m in choice.members), reverse=True)
    assert choice.options == 5 * len(FLOORS) * len(TAUS) * len(TEMPERATURES)
    assert all(m.posterior.strength.floor in FLOORS for m in choice.members)
    isotropic = choose(problem.linearised, shares=(0.0,))
    assert all(m.posterior.strength.share == 0 for m in isotropic.members)


def member(log_probs, weight=1.0):
    posterior = Problem("dense", 3, 5, pt.Categorical()).linearised.posterior(None)
    return StrengthMember(weight, posterior, Calibration(), 0.0, log_probs)


def test_members_that_predict_left_out_examples_better_weigh_more_and_equal_ones_the_same():
    even = torch.full((30,), -1.0)
    better, worse = averaged([member(even - 0.1), member(even)])
    assert float(better.log_probs[0]) == -1.0
    assert 0.9 < better.weight < 0.99  # exp(-3) against 1
    assert better.weight + worse.weight == pytest.approx(1)
    assert [m.weight for m in averaged([member(even), member(even)])] == pytest.approx([0.5, 0.5])
    (alone,) = averaged([member(even), member(even - 1)])
    assert alone.weight == 1


def test_what_few_examples_decide_is_less_certain_than_their_sum_says():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(30, generator=generator)
    noise = noise - noise.mean() + 0.2
    first, second = averaged([member(torch.zeros(30)), member(-noise)])
    assert first.weight < torch.sigmoid(torch.tensor(30 * 0.2)) - 0.03
    assert first.weight > second.weight


def test_a_group_counts_as_one_example_in_the_weights():
    scores, groups = torch.tensor([-1.0] * 20), torch.arange(20) // 10
    few = averaged([member(scores), member(scores - 0.3)], groups)
    many = averaged([member(scores), member(scores - 0.3)])
    assert few[0].weight == pytest.approx(float(torch.sigmoid(torch.tensor(0.6))), abs=1e-6)
    assert many[0].weight > 0.99


def test_folds_keep_groups_together_and_spread_classes():
    targets = torch.arange(40) % 4
    folds = LeaveOut.of(targets, folds=10).folds
    assert folds.bincount().tolist() == [4] * 10
    for k in range(10):
        assert len(targets[folds == k].unique()) >= 2
    groups = torch.arange(40) // 4
    together = LeaveOut.of(targets, groups, 10).folds
    for g in range(10):
        assert len(together[groups == g].unique()) == 1
