"""For a linear model with normal noise the Laplace approximation is no approximation."""

from __future__ import annotations

import pytest
import torch
from linear_gaussian import close, regression

import posterity as pt

ESTIMATORS = [
    pt.KFAC(pt.curvature.ExactLabels()),
    pt.KFOC(pt.curvature.ExactLabels()),
    pt.EKFAC(pt.curvature.ExactLabels()),
    pt.curvature.Dense(pt.curvature.ExactLabels()),
]


def trained(problem, prior):
    """The network at its mode, found by training."""
    layer = problem.network(torch.zeros(problem.x.shape[1] + 1, dtype=torch.float64))
    pt.train(
        layer,
        (problem.x, problem.y),
        prior,
        problem.likelihood,
        validation=None,
        batch_size=len(problem.x),
        epochs=4,
        optimiser=lambda p: torch.optim.LBFGS(
            p, max_iter=200, tolerance_grad=1e-14, tolerance_change=0, history_size=20
        ),
        progress=False,
    )
    return layer


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_laplace_posterior_is_the_conjugate_posterior(estimator):
    problem = regression()
    prior = pt.isotropic(problem.network(problem.mean), precision=0.7)
    layer = trained(problem, prior)
    curvature = pt.estimate(layer, (problem.x, problem.y), estimator, problem.likelihood, progress=False)
    posterior = pt.update(layer, curvature, prior)
    mean, precision = problem.posterior()
    close(posterior.mean[""].flatten(), mean)
    close(torch.linalg.inv(posterior.precision[""].dense()), torch.linalg.inv(precision))
    close(posterior.precision[""].dense(), precision)


@pytest.mark.parametrize(
    "estimator",
    [
        pt.KFAC(pt.curvature.ExactLabels()),
        pt.KFOC(pt.curvature.ExactLabels()),
        pt.curvature.Dense(pt.curvature.ExactLabels()),
    ],
    ids=lambda e: type(e).__name__,
)
def test_two_updates_on_halves_are_one_on_the_whole(estimator):
    """One output: left factors are numbers, so a sum is a pair again and joining it gives nothing up."""
    problem = regression()
    belief = pt.isotropic(problem.network(problem.mean), precision=0.7)
    for half in (problem.part(slice(0, 15)), problem.part(slice(15, None))):
        layer = trained(half, belief)
        curvature = pt.estimate(layer, (half.x, half.y), estimator, half.likelihood, progress=False)
        belief = pt.update(layer, curvature, belief)
    mean, precision = problem.posterior()
    close(belief.mean[""].flatten(), mean)
    close(belief.precision[""].dense(), precision)
    assert all(error < 1e-7 for error in belief.card.compression.values())
    assert belief.card.count == 40
    assert bool(belief.card.compression) == (not isinstance(estimator, pt.curvature.Dense))


def test_a_strong_prior_pins_the_mode_and_a_weak_one_lets_the_data_speak():
    problem = regression()
    start = torch.linspace(-1, 1, 5, dtype=torch.float64)
    free = torch.linalg.lstsq(problem.design, problem.y).solution[:, 0]
    for precision, expected in ((1e12, start), (1e-9, free)):
        prior = pt.isotropic(problem.network(start), precision, mean="model")
        layer = trained(problem, prior)
        found = torch.cat((layer.weight[0], layer.bias)).detach()
        assert (found - expected).abs().max() < 1e-8
    assert (start - free).abs().max() > 0.1


def test_a_zero_mean_is_zero_and_not_the_weights_at_hand():
    problem = regression()
    layer = problem.network(torch.full((5,), 3.0, dtype=torch.float64))
    prior = pt.isotropic(layer, 1e12)
    assert not prior.mean[""].any()
    pt.train(
        layer,
        (problem.x, problem.y),
        prior,
        problem.likelihood,
        validation=None,
        optimiser=lambda p: torch.optim.LBFGS(p, max_iter=50),
        epochs=2,
        progress=False,
    )
    assert max(p.abs().max() for p in layer.parameters()) < 1e-8
