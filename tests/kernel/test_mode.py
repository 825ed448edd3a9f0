"""The mode is the same by whatever way Newton's method came to it."""

from __future__ import annotations

import pytest
import torch
from small import Problem

import posterity as pt
from posterity.kernel import Calibration, LeaveOneOut, Strength, mode
from posterity.kernel.latent import LINKS
from posterity.kernel.mode import Observations, coupled_mode, shared_mode

TIGHT = {"rtol": 1e-9, "atol": 1e-9}


def latent_of(problem: Problem, floor: float, guess: torch.Tensor | None = None):
    side = problem.linearised.start().numel()
    gram = problem.linearised.kernel.own(problem.linearised.train, Strength(0.3, floor)).reshape(side, side)
    return coupled_mode(gram, Observations(problem.linearised.start(), problem.likelihood, problem.targets, guess))


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
    return shared_mode(gram, Observations(linearised.start(), problem.likelihood, problem.targets))


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
        found.append(
            coupled_mode(gram, Observations(torch.zeros(6, 3, dtype=torch.float64), pt.Categorical(), targets))
        )
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
    left_out = LeaveOneOut(torch.randn(12, 3, dtype=torch.float64), draw @ draw.mT)
    grid = [Calibration(tau, t) for tau in (0.0, 0.1, 1.0) for t in (1.0, 2.0)]
    together = left_out.nlls(likelihood, problem.targets, grid, kind)
    assert together == pytest.approx([left_out.nll(likelihood, problem.targets, c, kind) for c in grid], abs=1e-12)


@pytest.mark.parametrize("scale", [1e2, 1e3, 1e4, 1e5])
@pytest.mark.parametrize("kind", ["shared", "coupled"])
def test_repeated_examples_of_classes_that_can_be_separated_have_the_mode_found_in_weights(kind, scale):
    """Outputs there curve so little that the factor of where a search began asks for steps thousands of times too short."""
    n, classes = 20, 3
    targets = torch.arange(n) % classes
    features = 3 * scale**0.5 * torch.nn.functional.one_hot(targets, classes).double()
    start = torch.randn(n, classes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kernel = features @ features.mT
    if kind == "shared":
        found = shared_mode(kernel, Observations(start, pt.Categorical(), targets))
    else:
        found = coupled_mode(
            torch.kron(kernel, torch.eye(classes).double()), Observations(start, pt.Categorical(), targets)
        )
    value, log_det = mode_in_weights(features, start, targets)
    assert found.nll + 0.5 * float((found.weights * (found.outputs - start)).sum()) == pytest.approx(value, rel=1e-9)
    assert found.log_det == pytest.approx(log_det, abs=1e-5)


def mode_in_weights(features: torch.Tensor, start: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """The least of NLL + ½|W|² and the log det of its Hessian, by Newton's method over the weights themselves."""
    side = start.shape[1] * features.shape[1]
    weights = torch.zeros(side, dtype=torch.float64)

    def outputs(w: torch.Tensor) -> torch.Tensor:
        return start + features @ w.view(start.shape[1], -1).mT

    def value(w: torch.Tensor) -> float:
        return float(pt.Categorical().nll(outputs(w), targets)) + 0.5 * float(w.square().sum())

    while True:
        f = outputs(weights)
        root = pt.Categorical().fisher_root(f)
        hessian = torch.einsum("nar,nbr,ni,nj->aibj", root, root, features, features).reshape(side, side)
        hessian = hessian + torch.eye(side, dtype=torch.float64)
        step = torch.linalg.solve(hessian, (pt.Categorical().residual(f, targets).mT @ features).flatten() + weights)
        size = 1.0
        while value(weights - size * step) >= value(weights):
            size /= 2
            if size < 1e-12:
                return value(weights), float(torch.linalg.slogdet(hessian).logabsdet)
        weights = weights - size * step
