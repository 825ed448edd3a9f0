"""The shapes in signatures are looked at while tests run: without this, no other test would tell that they are not."""

from __future__ import annotations

import pytest
import torch
from beartype.roar import BeartypeException

from posterity.algebra import scaled_identity
from posterity.kernel import LeaveOneOut
from posterity.kernel.latent import centred


def test_a_function_given_other_shapes_than_it_says_raises():
    mean, covariance = torch.zeros(5, 3), torch.zeros(5, 3, 3)
    centred(mean, covariance)
    with pytest.raises(BeartypeException):
        centred(mean, torch.zeros(5, 3, 2))
    with pytest.raises(BeartypeException):
        centred(mean, torch.zeros(4, 3, 3))


def test_a_method_given_whole_numbers_for_real_ones_raises():
    matrix = scaled_identity(2.0, (2, 3))
    assert matrix.matmul(torch.ones(2, 3)).shape == (2, 3)
    with pytest.raises(BeartypeException):
        matrix.matmul(torch.ones(2, 3, dtype=torch.int64))


def test_a_record_given_other_shapes_than_its_fields_say_raises():
    with pytest.raises(BeartypeException):
        LeaveOneOut(torch.zeros(5, 3), torch.zeros(5, 3, 4))
