"""What is shown of a precision's eigenvalues is true of its dense form."""

from __future__ import annotations

import math

import pytest
import torch
from gaussians import EVERY
from matrices import definite, pair

from posterity.algebra import DenseMatrix, DiagonalMatrix, Kronecker
from posterity.gaussian import spectrum as module
from posterity.gaussian.spectrum import spectrum


@pytest.mark.parametrize("structure", EVERY)
def test_exact_spectra_are_those_of_the_dense_form(structure):
    matrix = EVERY[structure](4, 5, 0)
    found, values = spectrum(matrix), torch.linalg.eigvalsh(matrix.dense())
    assert found.exact
    assert found.smallest == pytest.approx(float(values[0]), rel=1e-9)
    assert found.largest == pytest.approx(float(values[-1]), rel=1e-9)
    assert values[9] * (1 - 1e-9) <= found.median <= values[10] * (1 + 1e-9)
    assert found.condition == pytest.approx(float(values[-1] / values[0]), rel=1e-8)
    assert sum(found.density) == pytest.approx(1)


@pytest.mark.parametrize("structure", ["sum of two", "sum of three", "joint eigen"])
def test_estimated_spectra_find_the_ends(structure, monkeypatch):
    matrix = EVERY[structure](12, 15, 3)
    values = torch.linalg.eigvalsh(matrix.dense())
    monkeypatch.setattr(module, "DENSE_LIMIT", 10)
    found = spectrum(matrix)
    assert not found.exact
    assert found.smallest == pytest.approx(float(values[0]), rel=0.02)
    assert found.largest == pytest.approx(float(values[-1]), rel=0.02)
    assert abs(math.log(found.median / float(values.median()))) < 0.5
    assert sum(found.density) == pytest.approx(1)


def test_an_estimate_survives_a_block_with_few_different_eigenvalues(monkeypatch):
    monkeypatch.setattr(module, "DENSE_LIMIT", 10)
    eye = [torch.eye(n, dtype=torch.float64) for n in (6, 7)]
    found = spectrum(Kronecker(*eye) + Kronecker(eye[0], 2 * eye[1]))
    assert (found.smallest, found.largest) == pytest.approx((3, 3))


def test_what_would_take_minutes_is_left_out(monkeypatch):
    monkeypatch.setattr(module, "FACTOR_LIMIT", 4)
    monkeypatch.setattr(module, "DENSE_LIMIT", 4)
    assert spectrum(pair(3, 5, 0)) is None
    assert spectrum(DenseMatrix(definite(6, 0), (2, 3))) is None
    assert spectrum(DiagonalMatrix(torch.ones(2, 9))) is not None


def test_a_singular_matrix_has_no_condition():
    assert spectrum(DiagonalMatrix(torch.tensor([[0.0, 1.0]]))).condition == math.inf
