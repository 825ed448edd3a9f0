"""A matrix is factorised once, and everything that needs its frame shares it."""

from __future__ import annotations

import pytest
import torch
from matrices import STRUCTURES, pair

import posterity as pt
from posterity.algebra import Kronecker, dense, kronecker

FRAMED = [name for name in STRUCTURES if name not in ("dense", "sum of three")]


@pytest.fixture
def factorised(monkeypatch) -> list[str]:
    """The names of all matrices that a Cholesky factor is computed of."""
    names: list[str] = []
    plain = kronecker.cholesky

    def counting(x, name):
        names.append(name)
        return plain(x, name)

    for module in (dense, kronecker):
        monkeypatch.setattr(module, "cholesky", counting)
    return names


@pytest.mark.parametrize("structure", FRAMED)
def test_the_frame_is_computed_once(structure):
    matrix = STRUCTURES[structure](3, 2, 0)
    assert matrix.frame() is matrix.frame()


@pytest.mark.parametrize("structure", FRAMED)
def test_a_multiple_shares_the_frame_with_values_scaled(structure, factorised):
    matrix, fresh = STRUCTURES[structure](3, 2, 0), STRUCTURES[structure](3, 2, 0) * 2.5
    matrix.logdet(), matrix.frame()
    factorised.clear()
    scaled = matrix * 2.5
    v = torch.ones(3, 2, dtype=torch.float64)
    found = scaled.logdet(), scaled.solve(v), scaled.trace_of(matrix)
    assert not factorised
    for ours, expected in zip(found, (fresh.logdet(), fresh.solve(v), fresh.trace_of(matrix)), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_a_prediction_factorises_every_side_of_every_block_once_and_the_next_one_nothing(factorised):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    mean = pt.isotropic(model).mean
    posterior = pt.Gaussian(mean, {name: pair(*matrix.shape, seed=i) for i, (name, matrix) in enumerate(mean.items())})
    x = torch.randn(40, 3)
    for method in ("sampled", "linearised"):
        pt.predict(model, posterior, x, method=method, batch_size=7, samples=20)
    assert len(factorised) == 2 * len(mean)
    pt.predict(model, posterior.tempered(0.1), x, batch_size=7, samples=20)
    assert len(factorised) == 2 * len(mean)


def test_where_a_gradient_is_wanted_every_frame_has_a_graph_of_its_own():
    left = torch.eye(2, dtype=torch.float64).mul(2).requires_grad_()
    matrix = Kronecker(left, torch.eye(3, dtype=torch.float64))
    with torch.no_grad():
        assert not matrix.logdet().requires_grad
    for _ in range(2):
        left.grad = None
        matrix.logdet().backward()
        # d log det(L ⊗ I₃)/dL = 3 L⁻¹
        torch.testing.assert_close(left.grad, 1.5 * torch.eye(2, dtype=torch.float64))


def test_a_frame_made_in_inference_mode_serves_automatic_differentiation_later():
    matrix = pair(2, 3, 0)
    with torch.inference_mode():
        matrix.sample(1)
    v = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    matrix.whiten(v).square().sum().backward()
    torch.testing.assert_close(v.grad, 2 * matrix.solve(torch.ones(2, 3, dtype=torch.float64)))
