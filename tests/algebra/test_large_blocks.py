"""Large blocks keep their Kronecker pair in single precision: the same matrix as in float64, at a fraction of the memory."""

import pytest
import torch

from posterity.algebra import (
    DenseMatrix,
    FlooredMatrix,
    Kronecker,
    as_floored,
    eigenvectors,
    in_one_frame,
    scaled_identity,
)

OUT, INP = 3, 5


def factor(n, rank, seed, dtype=torch.float64):
    x = torch.randn(rank, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x.T @ x).to(dtype)


def floored(dtype=torch.float64):
    return FlooredMatrix(Kronecker(factor(OUT, 2, 0, dtype), factor(INP, 4, 1, dtype)), share=0.7, floor=0.3)


def dense_of(matrix):
    wide = matrix.curvature.to(dtype=torch.float64).dense() * matrix.share
    return DenseMatrix(wide + matrix.floor * torch.eye(OUT * INP, dtype=torch.float64), (OUT, INP))


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_a_pair_with_a_floor_agrees_with_dense(dtype, near):
    matrix = floored(dtype)
    dense = dense_of(matrix)
    v = torch.randn(OUT, INP, dtype=dtype, generator=torch.Generator().manual_seed(2))
    for name in ("matmul", "solve", "quadratic"):
        torch.testing.assert_close(
            getattr(matrix, name)(v).double(), getattr(dense, name)(v.double()), rtol=near, atol=near
        )
    for name in ("trace", "logdet"):
        torch.testing.assert_close(getattr(matrix, name)().double(), getattr(dense, name)(), rtol=near, atol=near)
    white = matrix.whiten(v)
    torch.testing.assert_close(white.square().sum().double(), (v * dense.solve(v.double())).sum(), rtol=near, atol=near)
    left, right = (torch.linalg.qr(torch.randn(n, n, dtype=torch.float64)).Q for n in (OUT, INP))
    torch.testing.assert_close(matrix.diagonal_in(left, right), dense.diagonal_in(left, right), rtol=near, atol=near)


def test_numbers_are_adjusted_and_the_eigenframe_is_shared():
    matrix = floored()
    frame = matrix.diagonalised
    other = matrix.adjusted(share=0.1, floor=2.0)
    assert other.diagonalised is frame
    torch.testing.assert_close(other.logdet(), dense_of(other).logdet())


def test_frames_of_large_blocks_are_in_single_precision_and_close(monkeypatch):
    expected = floored(torch.float32)
    logdet = dense_of(expected).logdet()
    monkeypatch.setattr("posterity.algebra.base.LARGE", 4)
    frame = expected.frame()
    assert frame.left.dtype == frame.right.dtype == torch.float32
    torch.testing.assert_close(expected.logdet(), logdet, rtol=1e-5, atol=1e-5)
    draws = expected.sample(20_000, generator=torch.Generator().manual_seed(3)).flatten(1).double()
    cov = torch.linalg.inv(dense_of(expected).values)
    assert (draws.T @ draws / len(draws) - cov).abs().max() < 0.06 * cov.abs().max()


def test_a_large_pair_becomes_a_prior_as_it_is(monkeypatch):
    monkeypatch.setattr("posterity.algebra.base.LARGE", 4)
    pair = Kronecker(factor(OUT, 3, 0, torch.float32), factor(INP, 5, 1, torch.float32))
    assert as_floored(pair).curvature is pair
    # A sum of two is brought to one frame, in single precision too.
    other = Kronecker(factor(OUT, 3, 5, torch.float32), factor(INP, 5, 6, torch.float32))
    joined = in_one_frame([pair, other, scaled_identity(0.5, (OUT, INP))])
    torch.testing.assert_close(
        joined.trace(), (pair.trace() + other.trace() + 0.5 * OUT * INP).float(), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("single", [True, False])
def test_factors_that_span_many_orders_are_decomposed(single):
    n = 40
    basis = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    spread = torch.logspace(-24, 1, n, dtype=torch.float64)
    x = ((basis * spread) @ basis.T).float()
    values, vectors = eigenvectors((x + x.T) / 2, single=single)
    assert values.dtype == torch.float64
    assert bool((values >= 0).all())
    eye = vectors.double().T @ vectors.double()
    torch.testing.assert_close(eye, torch.eye(n, dtype=torch.float64), rtol=0, atol=1e-5)
    back = (vectors.double() * values) @ vectors.double().T
    assert (back - x.double()).abs().max() < 1e-5 * 10
    tiny, _ = eigenvectors(x * 1e-30, single=single)
    torch.testing.assert_close(tiny[-1] * 1e30, values[-1], rtol=1e-5, atol=0)


def test_a_factor_of_zeros_has_the_identity_for_a_frame():
    values, vectors = eigenvectors(torch.zeros(4, 4))
    assert not values.any()
    assert torch.equal(vectors.double(), torch.eye(4, dtype=torch.float64))


def test_a_factor_of_low_rank_is_decomposed_in_its_range(monkeypatch):
    monkeypatch.setattr("posterity.algebra.base.LARGE", 8)
    x = factor(40, 6, 9)
    values, vectors = eigenvectors(x, rank=7)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(40, dtype=torch.float64))
    torch.testing.assert_close((vectors * values) @ vectors.T, x)
    torch.testing.assert_close(values[-6:], torch.linalg.eigvalsh(x)[-6:])
    assert float(values[:33].abs().max()) == 0
