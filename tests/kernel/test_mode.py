"""The mode is the same by whatever way Newton's method came to it."""

from __future__ import annotations

import pytest
import torch
from small import Problem

import posterity as pt
from posterity.kernel import Calibration, LeftOut, Strength, mode
from posterity.kernel.latent import LINKS
from posterity.kernel.mode import coupled_mode, shared_mode

TIGHT = {"rtol": 1e-9, "atol": 1e-9}


def latent_of(problem: Problem, floor: float, guess: torch.Tensor | None = None):
    side = problem.linearised.start().numel()
    gram = problem.linearised.kernel.own(problem.linearised.train, Strength(0.3, floor)).reshape(side, side)
    return coupled_mode(gram, problem.linearised.start(), problem.likelihood, problem.targets, guess)


def same(one, other) -> None:
    for name in ("outputs", "lower", "root"):
        assert getattr(one, name).dtype == torch.float64
        torch.testing.assert_close(getattr(one, name), getattr(other, name), **TIGHT)


@pytest.mark.parametrize("likelihood", [pt.Categorical(), pt.Bernoulli(), pt.GaussianNoise(3.0)])
@pytest.mark.parametrize("floor", [1e-3, 0.01, 1.0])
def test_rough_steps_on_the_way_leave_no_trace_at_the_mode(likelihood, floor, monkeypatch):
    problem = Problem("convolutional", 3, 12, likelihood)
    rough = latent_of(problem, floor)
    monkeypatch.setattr(mode, "NEAR", float("inf"))
    same(rough, latent_of(problem, floor))


def shared_latent_of(problem: Problem, floor: float):
    linearised = problem.linearised
    gram = linearised.kernel.own(linearised.train, Strength(0.3, floor)).diagonal(dim1=1, dim2=3).mean(-1)
    return shared_mode(gram, linearised.start(), problem.likelihood, problem.targets)


@pytest.mark.parametrize("likelihood", [pt.Categorical(), pt.Bernoulli()])
@pytest.mark.parametrize("floor", [1e-3, 1.0])
@pytest.mark.parametrize("find", [latent_of, shared_latent_of])
def test_factors_that_serve_several_steps_are_fewer_and_leave_no_trace_at_the_mode(
    likelihood, floor, find, monkeypatch
):
    problem, found, counts = Problem("convolutional", 3, 12, likelihood), [], []
    cholesky = torch.linalg.cholesky
    for falls in (mode.FALLS, 0.0):  # as long as they serve, or one for each step
        counts.append(0)

        def counted(matrix: torch.Tensor) -> torch.Tensor:
            counts[-1] += 1
            return cholesky(matrix)

        monkeypatch.setattr(mode, "FALLS", falls)
        monkeypatch.setattr(torch.linalg, "cholesky", counted)
        found.append(find(problem, floor))
    assert counts[0] < counts[1]
    for name in ("outputs", "weights") + (("lower", "root") if find is latent_of else ("inner",)):
        torch.testing.assert_close(*(getattr(latent, name) for latent in found), **TIGHT)


def test_a_kernel_whose_factor_float32_cannot_hold_has_its_mode_all_the_same():
    targets, side = torch.tensor([0, 1, 1, 0, 2, 1]), 18
    found = []
    for largest in (8e6, 1e10):  # with steps in float32 that fail, and without any
        gram = largest * torch.ones(side, side, dtype=torch.float64) + torch.eye(side, dtype=torch.float64)
        found.append(coupled_mode(gram, torch.zeros(6, 3, dtype=torch.float64), pt.Categorical(), targets))
    # What all outputs have in common moves no probability.
    torch.testing.assert_close(*(latent.outputs.softmax(1) for latent in found), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("floor", [0.01, 100.0])
def test_a_guess_changes_where_the_search_begins_and_not_where_it_ends(floor):
    problem = Problem("convolutional", 3, 12, pt.Categorical())
    same(latent_of(problem, 1.0), latent_of(problem, 1.0, latent_of(problem, floor).outputs))


def test_yes_or_no_targets_in_float32_are_fitted_in_float64():
    problem = Problem("convolutional", 3, 12, pt.Bernoulli())
    outputs = torch.randn(12, 3, dtype=torch.float64)
    assert problem.likelihood.nll(outputs, problem.targets.float()).dtype == torch.float64
    exact = latent_of(problem, 0.1)
    problem.targets = problem.targets.float()
    same(exact, latent_of(problem, 0.1))


@pytest.mark.parametrize("kind", [k for k in LINKS if k != "sampled"])
@pytest.mark.parametrize("likelihood", [pt.Categorical(), pt.Bernoulli(), pt.GaussianNoise(3.0)])
def test_widths_scored_together_are_those_scored_one_by_one(kind, likelihood):
    problem = Problem("convolutional", 3, 12, likelihood)
    draw = torch.randn(12, 3, 3, dtype=torch.float64)
    left_out = LeftOut(torch.randn(12, 3, dtype=torch.float64), draw @ draw.mT)
    grid = [Calibration(tau, t) for tau in (0.0, 0.1, 1.0) for t in (1.0, 2.0)]
    together = left_out.nlls(likelihood, problem.targets, grid, kind)
    assert together == pytest.approx([left_out.nll(likelihood, problem.targets, c, kind) for c in grid], abs=1e-12)
