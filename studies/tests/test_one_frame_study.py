"""The study's matrix-free figures are those of dense matrices."""

from __future__ import annotations

import pytest
import torch

from posterity.algebra import Kronecker, KroneckerSum, RotatedMatrix, in_one_frame, in_turned_frame, nearest
from posterity_studies.studies.one_frame import methods
from posterity_studies.studies.one_frame.methods import (
    ExactSum,
    FrameMatrix,
    best_frame,
    kl,
    least_ratio,
    log_det,
    variances,
)


def factor(n: int, seed: int) -> torch.Tensor:
    x = torch.randn(n, 2 * n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x @ x.T / n


@pytest.fixture(scope="module")
def case() -> tuple[ExactSum, FrameMatrix, torch.Tensor]:
    terms = [Kronecker(factor(5, k), factor(7, 10 + k)) for k in range(3)]
    exact = ExactSum(terms, 0.5)
    dense = sum(torch.kron(t.left, t.right) for t in terms) + 0.5 * torch.eye(35, dtype=torch.float64)
    return exact, FrameMatrix.of_frame(in_one_frame(terms), 0.5), dense


def test_log_det_and_kl_are_those_of_dense_matrices(case, monkeypatch):
    exact, frame, dense = case
    whole = float(torch.linalg.slogdet(dense)[1])
    assert log_det(exact, frame, torch.Generator())[0] == pytest.approx(whole, abs=1e-9)
    monkeypatch.setattr(methods, "DENSE", 0)
    monkeypatch.setattr(methods, "PROBES", 400)
    found, error = log_det(exact, frame, torch.Generator().manual_seed(0))
    assert 0 < error < 0.5
    assert abs(found - whole) < 4 * error
    for way in (frame, FrameMatrix.of_pair(nearest(KroneckerSum(exact.terms)), 0.5)):
        q = torch.kron(way.left, way.right)
        approximate = q @ torch.diag(way.values.flatten()) @ q.T
        zero = torch.zeros(35, dtype=torch.float64)
        wanted = torch.distributions.kl_divergence(
            torch.distributions.MultivariateNormal(zero, precision_matrix=approximate),
            torch.distributions.MultivariateNormal(zero, precision_matrix=dense),
        )
        assert kl(way, exact, whole) == pytest.approx(float(wanted), rel=1e-8)


def test_variances_and_ratios_are_those_of_dense_matrices(case):
    exact, frame, dense = case
    g = torch.randn(4, 5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = torch.einsum("ni,ij,nj->n", g.flatten(1), torch.linalg.inv(dense), g.flatten(1))
    torch.testing.assert_close(variances(exact, frame, g), wanted, rtol=1e-9, atol=0)
    prior = ExactSum(exact.terms[:2], 0.5)
    before = dense - torch.kron(exact.terms[2].left, exact.terms[2].right)
    q = torch.kron(frame.left, frame.right)
    whitener = torch.linalg.inv(torch.linalg.cholesky(before))
    approximate = q @ torch.diag(frame.values.flatten()) @ q.T
    least = float(torch.linalg.eigvalsh(whitener @ approximate @ whitener.T)[0])
    assert least_ratio(frame, prior, torch.Generator().manual_seed(0)) == pytest.approx(least, rel=1e-6)


def test_the_best_frame_loses_no_more_than_its_start_and_nothing_where_one_frame_is_exact(case):
    exact, frame, dense = case
    whole = float(torch.linalg.slogdet(dense)[1])
    found = best_frame(exact, frame)
    assert 0 < kl(found, exact, whole) < 0.95 * kl(frame, exact, whole)
    eye = torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(found.left.mT @ found.left, eye, rtol=0, atol=1e-9)
    pair, turned = ExactSum(exact.terms[:1], 0.5), FrameMatrix(frame.left, frame.right, frame.values)
    alone = float(torch.linalg.slogdet(torch.kron(pair.terms[0].left, pair.terms[0].right) + 0.5 * torch.eye(35))[1])
    assert kl(FrameMatrix(turned.left, turned.right, turned.diagonal_of(pair)), pair, alone) > 1
    assert kl(best_frame(pair, turned), pair, alone) == pytest.approx(0, abs=0.01)


def test_figures_of_turned_frames_are_those_of_dense_matrices(case):
    exact, plain, dense = case
    joined = in_turned_frame(exact.terms, 0.5)
    assert isinstance(joined, RotatedMatrix)
    way = FrameMatrix.of_frame(joined, 0.5)
    approximate = joined.dense() + 0.5 * torch.eye(35, dtype=torch.float64)
    whole, zero = float(torch.linalg.slogdet(dense)[1]), torch.zeros(35, dtype=torch.float64)
    wanted = torch.distributions.kl_divergence(
        torch.distributions.MultivariateNormal(zero, precision_matrix=approximate),
        torch.distributions.MultivariateNormal(zero, precision_matrix=dense),
    )
    assert kl(way, exact, whole) == pytest.approx(float(wanted), rel=1e-8)
    assert kl(way, exact, whole) < kl(plain, exact, whole)
    g = torch.randn(4, 5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(variances(exact, way, g), variances(exact, plain, g), rtol=1e-8, atol=0)
    whitener = torch.linalg.inv(torch.linalg.cholesky(dense))
    least = float(torch.linalg.eigvalsh(whitener @ approximate @ whitener.T)[0])
    assert least_ratio(way, exact, torch.Generator().manual_seed(0)) == pytest.approx(least, rel=1e-6)
