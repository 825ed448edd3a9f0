"""What every structured matrix must satisfy, as checks for your own structures.

    from posterity.testing import check_matrix

    def test_my_structure():
        check_matrix(MyMatrix(...))

Each check compares a matrix with its own dense form and raises `AssertionError` where they differ. Matrices should be positive
definite, in float64, well conditioned and small: the dense form has (out·inp)² entries.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from posterity.algebra import DenseMatrix, Matrix
from posterity.errors import NotExact, SizeMismatch

DRAWS = 200_000
STANDARD_ERRORS = 5.0


def check_matrix(matrix: Matrix) -> None:
    """Every check below, on one matrix.

    Args:
        matrix: positive definite, in float64, with or without leading batch dimensions.
    Raises:
        AssertionError: if an operation does not agree with the dense form. The traceback names the check.

    Example:
        >>> check_matrix(Kronecker(torch.eye(2).double(), torch.eye(3).double()))
    """
    for check in CHECKS:
        check(matrix)


def check_products(matrix: Matrix) -> None:
    """`@`, `matmul` and `quadratic` are those of the dense form."""
    v = _vectors(matrix)
    expected = (matrix.dense() @ _flat(v)).squeeze(-1).unflatten(-1, matrix.shape)
    _close(matrix @ v, expected, 1e-9)
    _close(matrix.matmul(v), expected, 1e-9)
    _close(matrix.quadratic(v), (v * expected).sum((-2, -1)), 1e-9)


def check_solve(matrix: Matrix) -> None:
    """`solve` is that of the dense form, undoes the product, and broadcasts one vector over the batch."""
    v = _vectors(matrix)
    _close(matrix.solve(v), _dense_solve(matrix, v), 1e-8)
    _close(matrix.solve(matrix @ v), v, 1e-8)
    one = v[(0,) * len(matrix.batch)]
    _close(matrix.solve(one), _dense_solve(matrix, one.expand_as(v)), 1e-8)


def check_logdet_and_trace(matrix: Matrix) -> None:
    """`logdet` and `trace` are those of the dense form, one number for each matrix of the batch."""
    dense = matrix.dense()
    assert matrix.logdet().shape == matrix.batch, f"logdet has shape {matrix.logdet().shape}, the batch {matrix.batch}"
    torch.testing.assert_close(matrix.logdet(), torch.linalg.slogdet(dense).logabsdet, rtol=1e-9, atol=1e-9)
    _close(matrix.trace(), dense.diagonal(dim1=-2, dim2=-1).sum(-1), 1e-9)


def check_sums_and_multiples(matrix: Matrix) -> None:
    """`*`, `/` and `+` are exact, also with a dense matrix on either side."""
    dense = matrix.dense()
    _close((2.5 * matrix).dense(), 2.5 * dense, 1e-9)
    _close((matrix / 4).dense(), dense / 4, 1e-9)
    _close((matrix + 0.5 * matrix).dense(), 1.5 * dense, 1e-9)
    other = DenseMatrix(_definite(matrix), matrix.shape)
    _close((matrix + other).dense(), dense + other.values, 1e-9)
    _close((other + matrix).dense(), dense + other.values, 1e-9)
    factors = torch.arange(1, 1 + matrix.batch.numel()).to(dense).view(matrix.batch)
    _close((matrix * factors).dense(), dense * factors[..., None, None], 1e-9)


def check_draws(matrix: Matrix) -> None:
    """`sample` has the inverse as covariance and no mean, and repeats with the seed."""
    first, again, other = (matrix.sample(5, generator=torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert first.shape == (5, *matrix.batch, *matrix.shape), f"five draws have shape {tuple(first.shape)}"
    assert torch.equal(first, again), "draws with the same seed differ"
    assert not torch.equal(first, other), "draws with another seed are the same"
    number = max(1000, DRAWS // matrix.batch.numel())
    draws = matrix.sample(number, generator=torch.Generator().manual_seed(0)).flatten(-2).movedim(0, -2)
    covariance = torch.linalg.inv(matrix.dense())
    largest = covariance.diagonal(dim1=-2, dim2=-1).amax(-1)
    off_mean = draws.mean(-2).abs().amax(-1) / (largest / number).sqrt()
    off_covariance = (draws.mT @ draws / number - covariance).abs().amax((-2, -1)) / (largest * (2 / number) ** 0.5)
    assert bool((off_mean < STANDARD_ERRORS).all()), f"the mean of draws is {float(off_mean.max()):.1f} errors from 0"
    assert bool((off_covariance < STANDARD_ERRORS).all()), (
        f"the covariance of draws is {float(off_covariance.max()):.1f} standard errors from the inverse"
    )


def check_single_precision(matrix: Matrix) -> None:
    """`.to(dtype=float32)` keeps the matrix but for rounding, and products and draws follow the dtype."""
    single = matrix.to(dtype=torch.float32)
    assert single.dtype == torch.float32
    assert single.sample(2).dtype == torch.float32
    assert (single @ torch.ones(matrix.shape)).dtype == torch.float32
    torch.testing.assert_close(single.dense().double(), matrix.dense(), rtol=1e-5, atol=1e-5)
    assert single.to(dtype=torch.float64).dtype == torch.float64


def check_jitter(matrix: Matrix) -> None:
    """`jittered` raises the least eigenvalue, and zero jitter changes nothing."""
    least, lifted = (torch.linalg.eigvalsh(m.dense())[..., 0] for m in (matrix, matrix.jittered(1e-3)))
    assert bool((lifted > least).all()), "a jitter did not raise the least eigenvalue"
    _close(matrix.jittered(0.0).dense(), matrix.dense(), 1e-9)


def check_wrong_shapes(matrix: Matrix) -> None:
    """A vector or a summand of another shape is refused by `SizeMismatch`."""
    out, inp = matrix.shape
    wrong = torch.zeros(out + 1, inp, dtype=torch.float64)
    _refused(lambda: matrix.matmul(wrong))
    _refused(lambda: matrix.solve(wrong))
    _refused(lambda: matrix + DenseMatrix(torch.eye((out + 1) * inp, dtype=torch.float64), (out + 1, inp)))


def check_whitening(matrix: Matrix) -> None:
    """Whitened vectors have the inner products of the inverse."""
    u, v = _vectors(matrix, 1), _vectors(matrix, 2)
    _close((matrix.whiten(u) * matrix.whiten(v)).sum((-2, -1)), (u * _dense_solve(matrix, v)).sum((-2, -1)), 1e-8)


def check_trace_of(matrix: Matrix, other: Matrix | None = None) -> None:
    """`matrix.trace_of(other)` is tr(other · matrix⁻¹), whatever the other's structure (a dense one, if none is given)."""
    other = DenseMatrix(_definite(matrix), matrix.shape) if other is None else other
    expected = torch.linalg.solve(matrix.dense(), other.dense()).diagonal(dim1=-2, dim2=-1).sum(-1)
    _close(matrix.trace_of(other), expected, 1e-8)


def check_frame(matrix: Matrix) -> None:
    """The matrix is diagonal in its frame, if it has one, and the frame is computed once."""
    try:
        frame = matrix.frame()
    except NotExact:
        return
    both = torch.einsum("...ij,...kl->...ikjl", frame.left, frame.right).flatten(-4, -3).flatten(-2)
    _close(both @ matrix.dense() @ both.mT, torch.diag_embed(frame.values.flatten(-2)), 1e-9)
    assert matrix.frame() is frame, "the frame was computed again"


def check_diagonal(matrix: Matrix) -> None:
    """`diagonal_in` is the diagonal in the bases given, be they orthogonal or not."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(n, n, generator=generator, dtype=torch.float64) for n in matrix.shape)
    both = torch.kron(left, right)
    expected = (both @ matrix.dense() @ both.mT).diagonal(dim1=-2, dim2=-1).unflatten(-1, matrix.shape)
    _close(matrix.diagonal_in(left, right), expected, 1e-9)


CHECKS: tuple[Callable[[Matrix], None], ...] = (
    check_products,
    check_solve,
    check_logdet_and_trace,
    check_sums_and_multiples,
    check_draws,
    check_single_precision,
    check_jitter,
    check_wrong_shapes,
    check_whitening,
    check_trace_of,
    check_frame,
    check_diagonal,
)
"""All of the checks, each of which takes one matrix: for `pytest.mark.parametrize`."""


def _vectors(matrix: Matrix, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*matrix.batch, *matrix.shape, generator=generator, dtype=torch.float64)


def _definite(matrix: Matrix) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    a = torch.randn(*matrix.batch, matrix.size, matrix.size + 2, generator=generator, dtype=torch.float64)
    return a @ a.mT / (matrix.size + 2)


def _flat(v: Tensor) -> Tensor:
    return v.flatten(-2)[..., None]


def _dense_solve(matrix: Matrix, v: Tensor) -> Tensor:
    return torch.linalg.solve(matrix.dense(), _flat(v)).squeeze(-1).unflatten(-1, matrix.shape)


def _close(actual: Tensor, expected: Tensor, rtol: float) -> None:
    torch.testing.assert_close(actual, expected.expand_as(actual), rtol=rtol, atol=rtol * float(expected.abs().max()))


def _refused(call: Callable[[], object]) -> None:
    try:
        call()
    except SizeMismatch:
        return
    raise AssertionError("a wrong shape was taken without an error")
