"""The posterior in function space equals the posterior over weights, written out densely."""

from __future__ import annotations

import math

import pytest
import torch
from small import Problem, some_inputs

import posterity as pt
from posterity.kernel import Strength, centred

CASES = [
    ("dense", 3, pt.Categorical()),
    ("convolutional", 3, pt.Categorical()),
    ("dense", 2, pt.GaussianNoise(4.0)),
    ("convolutional", 1, pt.GaussianNoise(2.0)),
    ("dense", 2, pt.Bernoulli()),
    ("last token", 3, pt.Categorical()),
    ("token by token", 3, pt.Categorical()),
]


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-8) -> None:
    torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("kind", "outputs", "likelihood"), CASES)
def test_the_kernel_is_the_jacobian_in_the_metric_of_the_prior(kind, outputs, likelihood):
    problem = Problem(kind, outputs, 5, likelihood)
    j = problem.dense_jacobian(problem.x).flatten(0, 1)
    expected = j @ torch.linalg.solve(problem.dense_precision(), j.mT)
    close(problem.linearised.kernel.own(problem.linearised.train, None).reshape(len(j), -1), expected)
    new = some_inputs(kind, 4).double()
    k = problem.dense_jacobian(new).flatten(0, 1)
    cross = problem.linearised.kernel.between(problem.linearised.train, problem.jacobian(new), None)
    close(cross.reshape(len(j), -1), j @ torch.linalg.solve(problem.dense_precision(), k.mT))


@pytest.mark.parametrize(("kind", "outputs", "likelihood"), CASES)
def test_mean_and_covariance_at_new_inputs_are_those_of_the_gauss_newton_posterior(kind, outputs, likelihood):
    problem = Problem(kind, outputs, 6, likelihood)
    posterior = problem.linearised.posterior(None)
    new = some_inputs(kind, 4).double()
    mean, covariance = posterior.moments(problem.jacobian(new))
    j, precision = problem.dense_jacobian(problem.x), problem.dense_precision()
    root = likelihood.fisher_root(posterior.latent.outputs)
    hessian = torch.einsum("ncp,ncd,nde,neq->pq", j, root, root.mT, j) + precision
    k = problem.dense_jacobian(new)
    close(covariance, k @ torch.linalg.solve(hessian, k.mT))
    # The mode over weights: the gradient of the objective vanishes there.
    shift = problem.flat(problem.mean) - problem.flat(problem.point)
    gradient = -torch.einsum("ncp,nc->p", j, likelihood.residual(posterior.latent.outputs, problem.targets))
    weights = shift + torch.linalg.solve(precision, gradient)
    close(posterior.latent.outputs, problem.outputs(problem.x) + j @ weights, 1e-6)
    close(mean, problem.outputs(new) + k @ weights, 1e-6)


def test_a_head_at_many_positions_of_which_one_is_returned_keeps_rows():
    kept = {kind: Problem(kind, 3, 5, pt.Categorical()).linearised.train for kind in ("last token", "token by token")}
    assert {kind: type(found.blocks["head"]).__name__ for kind, found in kept.items()} == {
        "last token": "Rows",
        "token by token": "Gradients",
    }


def test_the_evidence_of_gaussian_noise_is_exact():
    problem = Problem("dense", 2, 6, pt.GaussianNoise(4.0))
    j = problem.dense_jacobian(problem.x).flatten(0, 1)
    covariance = j @ torch.linalg.solve(problem.dense_precision(), j.mT) + torch.eye(len(j)) / 4
    start = problem.linearised.start().flatten()
    exact = torch.distributions.MultivariateNormal(start, covariance).log_prob(problem.targets.flatten())
    assert problem.linearised.posterior(None).log_evidence == pytest.approx(float(exact), abs=1e-8)


@pytest.mark.parametrize("likelihood", [pt.Categorical(), pt.Bernoulli(), pt.GaussianNoise(3.0)])
def test_a_shared_kernel_is_the_coupled_one_of_its_kronecker_product(likelihood):
    problem = Problem("convolutional", 3, 7, likelihood, shared=True)
    strength = Strength(0.3, 0.7, 0.5)
    shared = problem.linearised.posterior(strength)
    gram = problem.linearised.kernel.own(problem.linearised.train, strength)
    full = torch.einsum("nm,cd->ncmd", gram, torch.eye(3, dtype=torch.float64))
    from posterity.kernel.mode import Observations, coupled_mode

    start = torch.zeros(7, 3, dtype=torch.float64)
    coupled = coupled_mode(full.reshape(21, 21), Observations(start, likelihood, problem.targets))
    close(shared.latent.outputs, coupled.outputs, 1e-6)
    assert shared.log_evidence == pytest.approx(coupled.log_evidence, abs=1e-6)
    groups = torch.tensor([[0, 3], [1, 5]])
    close(shared.latent.blocks(groups), coupled.blocks(groups), 1e-6)
    new = torch.randn(7, 2, dtype=torch.float64)
    prior = new.square().sum(0) + 5
    eye = torch.eye(3, dtype=torch.float64)
    expected = coupled.covariance(torch.einsum("nm,cd->ncmd", new, eye), prior[:, None, None] * eye)
    close(shared.latent.covariance(new, prior), expected, 1e-6)


def test_a_new_head_sees_features_and_the_layers_below_through_the_old_heads_rows():
    problem = Problem("dense", 3, 5, pt.Categorical(), shared=True)
    strength = Strength(0.3, 0.7, 2.0)
    j = problem.dense_jacobian(problem.x)
    precision = torch.block_diag(*(problem.precision[name].dense().double() for name in list(problem.blocks)[:-1]))
    body = j[:, :, : len(precision)]
    average = torch.einsum("ncp,mcp->nm", body @ torch.linalg.inv(precision), body) / 3
    features = torch.cat([problem.model[:-1](problem.x), torch.ones(5, 1, dtype=torch.float64)], 1).detach()
    close(problem.linearised.kernel.own(problem.linearised.train, strength), average + features @ features.mT / 2.0)
    close(
        problem.linearised.kernel.within(problem.linearised.train, strength),
        (average + features @ features.mT / 2.0).diagonal(),
    )


@pytest.mark.parametrize(("kind", "outputs", "likelihood"), CASES)
def test_the_mode_is_a_minimum_of_the_objective(kind, outputs, likelihood):
    problem = Problem(kind, outputs, 6, likelihood)
    latent = problem.linearised.posterior(None).latent

    def objective(w: torch.Tensor) -> float:
        move = (latent.gram @ w.flatten()).view_as(w)
        return float(likelihood.nll(latent.start + move, problem.targets)) + 0.5 * float((w * move).sum())

    least = objective(latent.weights)
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        direction = torch.randn(latent.weights.shape, generator=generator, dtype=torch.float64)
        for size in (1e-3, -1e-3, 0.1, -0.1):
            assert objective(latent.weights + size * direction) >= least - 1e-10


def test_the_evidence_of_classes_is_near_the_integral_by_quadrature():
    """One example of two classes: the integral over the difference of two logits is one-dimensional."""
    problem = Problem("dense", 2, 1, pt.Categorical())
    posterior = problem.linearised.posterior(Strength(0.3, 5.0))
    gram = problem.linearised.kernel.own(problem.linearised.train, Strength(0.3, 5.0)).reshape(2, 2)
    start = problem.linearised.start()[0]
    y = int(problem.targets[0])
    mean, variance = float(start[y] - start[1 - y]), float(gram[0, 0] + gram[1, 1] - 2 * gram[0, 1])
    grid = torch.linspace(-12, 12, 20001, dtype=torch.float64)
    density = torch.exp(-0.5 * grid.square()) / math.sqrt(2 * math.pi)
    exact = float(torch.trapezoid(torch.sigmoid(mean + math.sqrt(variance) * grid) * density, grid).log())
    assert posterior.log_evidence == pytest.approx(exact, abs=0.05)


def test_a_shift_common_to_all_classes_is_not_seen():
    mean, covariance = torch.randn(3, 4), torch.eye(4).expand(3, 4, 4)
    shifted = centred(mean + 7.0, covariance + 5.0)
    for a, b in zip(centred(mean, covariance), shifted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
