"""Every structured matrix agrees with its dense form, whatever the shape, seed and batch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from matrices import STRUCTURES, batches, seeds, sizes

from posterity import testing
from posterity.algebra import DiagonalMatrix, Matrix
from posterity.errors import NotExact, SizeMismatch

every_structure = pytest.mark.parametrize("structure", STRUCTURES)
some = settings(max_examples=25, deadline=None)
CHEAP = (
    testing.check_products,
    testing.check_solve,
    testing.check_logdet_and_trace,
    testing.check_sums_and_multiples,
)


@every_structure
@pytest.mark.parametrize("check", CHEAP)
@some
@given(out=sizes, inp=sizes, seed=seeds, batch=batches)
def test_it_agrees_with_dense_for_every_shape_seed_and_batch(structure, check, out, inp, seed, batch):
    check(STRUCTURES[structure](out, inp, seed, batch))


@every_structure
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("check", testing.CHECKS)
def test_it_keeps_the_whole_contract(structure, check, batch):
    check(STRUCTURES[structure](2, 3, 1, batch))


@every_structure
@pytest.mark.parametrize("against", STRUCTURES)
def test_the_trace_against_another_matrix_agrees_with_dense(structure, against):
    testing.check_trace_of(STRUCTURES[against](2, 3, 9, (2,)), STRUCTURES[structure](2, 3, 0, (2,)))


@every_structure
def test_a_vector_of_the_wrong_shape_is_refused_with_both_shapes(structure):
    matrix = STRUCTURES[structure](2, 3, 0)
    with pytest.raises(SizeMismatch, match="2×3"):
        matrix.matmul(torch.zeros(3, 2, dtype=torch.float64))
    with pytest.raises(SizeMismatch, match="cannot add"):
        matrix + STRUCTURES["dense"](3, 2, 0)


@every_structure
def test_an_identity_adds_exactly_to_every_structure_that_can_hold_the_sum(structure):
    matrix, identity = STRUCTURES[structure](2, 3, 4), STRUCTURES["identity"](2, 3, 5)
    if structure == "joint eigen":  # its basis is not orthogonal: the identity is not diagonal there
        with pytest.raises(NotExact):
            matrix + identity
        return
    for total in (matrix + identity, identity + matrix):
        torch.testing.assert_close(total.dense(), matrix.dense() + identity.dense(), rtol=1e-9, atol=1e-9)


@dataclass(frozen=True, eq=False)
class Wrong(DiagonalMatrix):
    """A diagonal matrix with one operation that is not what it should be."""

    operation: str = ""

    def matmul(self, v):
        if self.operation == "wrong_shapes":
            return v
        return super().matmul(v) * (2 if self.operation == "products" else 1)

    def solve(self, v):
        return super().solve(v) + (1e-4 if self.operation == "solve" else 0)

    def logdet(self):
        return super().logdet() + (1e-3 if self.operation == "logdet_and_trace" else 0)

    def sample(self, n, *, generator=None):
        return super().sample(n, generator=generator) * (1.1 if self.operation == "draws" else 1)

    def whiten(self, v):
        return super().whiten(v) * (1.01 if self.operation == "whitening" else 1)

    def trace_of(self, other):
        return super().trace_of(other) * (1.01 if self.operation == "trace_of" else 1)

    def diagonal_in(self, left, right):
        return super().diagonal_in(left, right) * (1.01 if self.operation == "diagonal" else 1)

    def jittered(self, relative) -> Matrix:
        return self if self.operation == "jitter" else super().jittered(relative)

    def to(self, device=None, dtype=None) -> Matrix:
        return self if self.operation == "single_precision" else super().to(device, dtype)

    def __mul__(self, scalar) -> Matrix:
        return self if self.operation == "sums_and_multiples" else super().__mul__(scalar)

    def frame(self):
        frame = super().frame()
        return frame.scaled(1.01) if self.operation == "frame" else frame


@pytest.mark.parametrize("check", testing.CHECKS)
def test_every_check_finds_the_mistake_that_it_is_for(check):
    values = torch.tensor([[0.3, 1.0, 2.0], [0.5, 0.7, 1.1]], dtype=torch.float64)
    check(Wrong(values))
    with pytest.raises(AssertionError):
        check(Wrong(values, check.__name__.removeprefix("check_")))
