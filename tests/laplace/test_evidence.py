"""The marginal likelihood, and the strength of the prior that makes it greatest."""

from __future__ import annotations

import math

import pytest
import torch
from linear_gaussian import Regression, regression
from matrices import STRUCTURES
from test_update import CURVATURES, SHAPE, curvature, gaussian, point

import posterity as pt
from posterity.algebra import Kronecker
from posterity.errors import BlockMismatch, NotExact
from posterity.laplace import relative_spectrum

PAIRS = [
    *[("identity", data) for data in CURVATURES],
    ("kronecker", "kronecker"),
    ("sum of one", "kronecker"),
    ("diagonal", "diagonal"),
    *[("dense", data) for data in CURVATURES],
    *[(before, "dense") for before in STRUCTURES],
]


@pytest.mark.parametrize(("before", "data"), PAIRS)
def test_the_relative_spectrum_holds_the_generalised_eigenvalues(before, data):
    prior, new = STRUCTURES[before](*SHAPE, 0), CURVATURES[data]()
    expected = torch.linalg.eigvals(torch.linalg.solve(prior.dense(), new.dense())).real.sort().values
    found = relative_spectrum(prior, new)
    assert found.shape == SHAPE
    torch.testing.assert_close(found.flatten().sort().values, expected, rtol=1e-9, atol=1e-10)
    alpha, beta = 0.3, 2.0
    logdet = torch.linalg.slogdet(beta * new.dense() + alpha * prior.dense()).logabsdet
    torch.testing.assert_close(
        (beta * found + alpha).log().sum(), logdet - torch.linalg.slogdet(prior.dense()).logabsdet
    )


@pytest.mark.parametrize(
    ("before", "data"), [("kronecker", "diagonal"), ("diagonal", "kronecker"), ("kronecker", "rotated")]
)
def test_pairs_without_a_common_eigenbasis_are_refused(before, data):
    with pytest.raises(NotExact, match="share no eigenbasis"):
        relative_spectrum(STRUCTURES[before](*SHAPE, 0), CURVATURES[data]())


@pytest.mark.parametrize(
    "estimator",
    [
        pt.KFAC(pt.curvature.ExactLabels()),
        pt.EKFAC(pt.curvature.ExactLabels()),
        pt.curvature.Dense(pt.curvature.ExactLabels()),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("alpha", [1.0, 0.2, 30.0])
def test_the_evidence_of_a_linear_model_is_its_marginal_likelihood(estimator, alpha):
    problem = regression()
    scaled = Regression(problem.x, problem.y, problem.noise, problem.mean, alpha * problem.prior)
    mode, _ = scaled.posterior()
    layer = scaled.network(mode)
    prior = pt.isotropic(layer, 0.7)
    data = pt.estimate(layer, (problem.x, problem.y), estimator, problem.likelihood, progress=False)
    found = pt.laplace.log_evidence(layer, data, prior, pt.Scales(alpha=alpha))
    assert found == pytest.approx(scaled.log_evidence(), rel=1e-10)


def test_the_tuned_strength_is_where_the_evidence_is_greatest():
    problem = regression()
    layer = problem.network(problem.posterior()[0])
    prior = pt.isotropic(layer, 0.7)
    data = pt.estimate(
        layer, (problem.x, problem.y), pt.KFAC(pt.curvature.ExactLabels()), problem.likelihood, progress=False
    )
    tuned = pt.laplace.tune_strength(layer, data, prior)
    grid = [math.exp(0.02 * i) for i in range(-200, 200)]
    best = max(grid, key=lambda a: pt.laplace.log_evidence(layer, data, prior, pt.Scales(alpha=a)))
    assert 2e-2 < best < 50
    assert tuned.alpha == pytest.approx(best, rel=2e-2)
    assert (tuned.beta, tuned.temperature) == (1.0, 1.0)


def test_many_blocks_share_one_strength():
    prior = gaussian(a=STRUCTURES["identity"](*SHAPE, 0), b=STRUCTURES["kronecker"](*SHAPE, 1))
    data = curvature(a=CURVATURES["rotated"](), b=CURVATURES["kronecker"]())
    alpha = pt.laplace.tune_strength(point(prior), data, prior).alpha
    here, *beside = (
        pt.laplace.log_evidence(point(prior), data, prior, pt.Scales(alpha=alpha * f)) for f in (1, 0.98, 1.02)
    )
    assert here > max(beside)


def test_a_block_without_curvature_is_named():
    prior = gaussian(a=STRUCTURES["identity"](*SHAPE, 0))
    for verb in (pt.laplace.tune_strength, pt.laplace.log_evidence):
        with pytest.raises(BlockMismatch, match='the prior has a block "a" and the curvature has not'):
            verb(prior, point(prior), curvature(b=Kronecker(torch.eye(2), torch.eye(3))))
