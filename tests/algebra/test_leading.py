"""A precision by its leading eigenvectors: exact with all of them, and better than the diagonal with a few."""

from __future__ import annotations

import pytest
import torch

from posterity.algebra import FlooredMatrix, Kronecker, eigenframe, leading


def stiff(out: int = 4, inp: int = 9) -> FlooredMatrix:
    """Curvature in few directions, hundreds of times above the floor: weights that change together cost most."""
    dice = torch.Generator().manual_seed(0)
    sides = []
    for n, spread in ((out, 0.5), (inp, 5.0)):
        basis = torch.linalg.qr(torch.randn(n, n, generator=dice, dtype=torch.float64)).Q
        sides.append(basis * torch.logspace(spread, -2, n, dtype=torch.float64) @ basis.mT)
    return FlooredMatrix(Kronecker(*sides), 0.3, 2.0)


def known(matrix: FlooredMatrix) -> FlooredMatrix:
    assert eigenframe(matrix) is not None  # computed here, and kept
    return matrix


@pytest.mark.parametrize("exponent", [1.0, -0.5])
def test_with_all_eigenvectors_powers_are_those_of_the_dense_matrix(exponent: float) -> None:
    matrix = known(stiff())
    g = torch.randn(4, 9, dtype=torch.float64)
    found = leading(matrix, g, count=9)
    assert found is not None
    values, vectors = torch.linalg.eigh(matrix.dense())
    truth = (vectors * values**exponent) @ vectors.mT @ g.flatten()
    torch.testing.assert_close(found.power(exponent, 0.0, g).flatten(), truth, rtol=1e-9, atol=1e-9)


def test_a_few_eigenvectors_whiten_better_than_the_diagonal() -> None:
    """The cost of a unit step in the coordinates of each: one at best, for every direction."""
    matrix = known(stiff())
    found = leading(matrix, torch.zeros((), dtype=torch.float64), count=6)
    assert found is not None
    eye = torch.eye(36, dtype=torch.float64).unflatten(1, (4, 9))
    shorten = torch.stack([found.power(-0.5, 0.0, e).flatten() for e in eye])
    diagonal = torch.diag(matrix.dense().diagonal().rsqrt())
    most = [float(torch.linalg.eigvalsh(s @ matrix.dense() @ s)[-1]) for s in (shorten, diagonal)]
    assert most[0] < 2
    assert most[1] > 4


def test_eigenvalues_are_taken_as_the_least_at_least() -> None:
    matrix, g = known(stiff()), torch.randn(4, 9, dtype=torch.float64)
    found = leading(matrix, g)
    assert found is not None
    torch.testing.assert_close(found.power(-0.5, 1e12, g), 1e-6 * g, rtol=1e-9, atol=0)


def test_eigenvectors_that_nobody_computed_are_not_computed_for_it() -> None:
    assert leading(stiff(), torch.zeros(())) is None
