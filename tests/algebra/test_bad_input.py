"""Bad input is refused by name, and nothing is repaired in silence."""

from __future__ import annotations

import pytest
import torch
from matrices import definite, pair, semidefinite, singular_pair

from posterity.algebra import DenseMatrix, DiagonalMatrix, Kronecker, KroneckerSum, nearest, relative_error
from posterity.errors import (
    EmptySum,
    NotExact,
    NotFinite,
    NotPositiveDefinite,
    NotReal,
    NotSquare,
    NotSymmetric,
    PosterityError,
    SizeMismatch,
    TooLarge,
)

EYE = torch.eye(3, dtype=torch.float64)


def with_entry(value: float) -> torch.Tensor:
    x = EYE.clone()
    x[1, 1] = value
    return x


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda: Kronecker(torch.ones(2, 3), EYE), NotSquare, r"Kronecker.left has shape \(2, 3\)"),
        (lambda: Kronecker(EYE, torch.ones(3)), NotSquare, "Kronecker.right"),
        (lambda: Kronecker(torch.ones(0, 0), EYE), NotSquare, "non-empty"),
        (lambda: Kronecker(EYE, EYE + torch.triu(EYE.new_ones(3, 3), 1)), NotSymmetric, "Kronecker.right differs"),
        (lambda: Kronecker(with_entry(float("nan")), EYE), NotFinite, r"Kronecker.left has 1 entries .* \(1, 1\)"),
        (lambda: Kronecker(with_entry(float("inf")), EYE), NotFinite, "Kronecker.left"),
        (lambda: Kronecker(torch.eye(3, dtype=torch.int64), EYE), NotReal, "int64"),
        (lambda: Kronecker(EYE.expand(2, 3, 3), EYE.expand(5, 3, 3)), SizeMismatch, "broadcast"),
        (lambda: KroneckerSum([]), EmptySum, "at least one term"),
        (lambda: KroneckerSum([pair(2, 3, 0), pair(3, 2, 0)]), SizeMismatch, "2×3"),
        (lambda: DenseMatrix(EYE, (2, 2)), SizeMismatch, "2·2 = 4"),
        (lambda: DiagonalMatrix(torch.ones(3)), NotSquare, "look like the block"),
        (lambda: DiagonalMatrix(torch.tensor([[float("nan")]])), NotFinite, "DiagonalMatrix"),
        (lambda: pair(2, 3, 0).joint(pair(3, 2, 0)), SizeMismatch, "2×3"),
        (lambda: singular_pair(4, 4, 0).joint(pair(4, 4, 0)), NotPositiveDefinite, "left factor of the ref"),
        (lambda: pair(3, 2, 0).joint(Kronecker(with_entry(-1), torch.eye(2))), NotPositiveDefinite, "left"),
        (lambda: Kronecker(with_entry(-1), EYE).logdet(), NotPositiveDefinite, "Kronecker.left .*-1.00e"),
        (lambda: Kronecker(EYE, with_entry(-1)).sample(1), NotPositiveDefinite, "Kronecker.right"),
        (lambda: DenseMatrix(with_entry(-2), (3, 1)).solve(EYE[:, :1]), NotPositiveDefinite, "-2.00e"),
        (lambda: DiagonalMatrix(with_entry(-2)).logdet(), NotPositiveDefinite, "jittered"),
        (lambda: DiagonalMatrix(EYE + 1) + Kronecker(EYE, EYE), NotExact, "neither"),
        (lambda: Kronecker(EYE, EYE) + DiagonalMatrix(EYE + 1), NotExact, "neither"),
        (lambda: (pair(3, 3, 0) + pair(3, 3, 1)) + DiagonalMatrix(EYE + 1), NotExact, "neither"),
        (lambda: pair(3, 3, 0).joint(pair(3, 3, 1)) + pair(3, 3, 2), NotExact, "combine"),
        (lambda: KroneckerSum([pair(65, 65, s) for s in range(3)]).logdet(), TooLarge, "nearest"),
        (lambda: relative_error(KroneckerSum([pair(2, 3, 0)]), pair(3, 2, 0)), SizeMismatch, "agree"),
    ],
)
def test_bad_input_gets_a_named_error_that_says_what_to_do(build, error, says):
    with pytest.raises(error, match=says) as caught:
        build()
    assert isinstance(caught.value, PosterityError)


def test_asymmetry_of_rounding_size_is_accepted():
    x = definite(5, 0)
    x[0, 1] *= 1 + 1e-15
    assert torch.equal(Kronecker(x, EYE).left, x)


def test_a_singular_matrix_is_not_repaired_unless_a_jitter_is_asked_for():
    singular = Kronecker(semidefinite(4, 2, 0), definite(3, 1))
    with pytest.raises(NotPositiveDefinite):
        singular.logdet()
    assert torch.isfinite(singular.jittered(1e-6).logdet())


def test_two_singular_terms_with_a_definite_sum_are_still_exact():
    a = Kronecker(torch.diag(torch.tensor([1.0, 0.0])).double(), torch.eye(2).double())
    b = Kronecker(torch.diag(torch.tensor([0.0, 2.0])).double(), torch.eye(2).double())
    torch.testing.assert_close((a + b).logdet(), torch.tensor(4.0).double().log())


def test_numbers_near_overflow_are_not_taken_for_infinities():
    huge = torch.full((2, 2), 1.7e308, dtype=torch.float64)
    found = nearest(KroneckerSum([Kronecker(huge, torch.eye(2).double())]))
    torch.testing.assert_close(found.left, huge)
