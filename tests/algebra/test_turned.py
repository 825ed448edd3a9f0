"""Frames with turned directions: the contract, what is exact, and how much closer they are than a plain frame."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import STRUCTURES, pair, seeds, semidefinite, sizes, turned

from posterity import testing
from posterity.algebra import (
    DenseMatrix,
    FlooredMatrix,
    JointEigen,
    Kronecker,
    Matrix,
    RotatedMatrix,
    as_floored,
    frame_error,
    in_one_frame,
    in_turned_frame,
    scaled_identity,
)
from posterity.errors import NotExact, NotSquare, SizeMismatch

unhurried = settings(deadline=None, max_examples=25)
kinds = st.sampled_from(["turned", *sorted(STRUCTURES)])


def every(name: str, out: int, inp: int, seed: int) -> Matrix:
    return turned(out, inp, seed) if name == "turned" else STRUCTURES[name](out, inp, seed)


def dense(*terms: Matrix) -> torch.Tensor:
    return torch.stack([term.dense().double() for term in terms]).sum(0)


def coupled(seed: int, count: int = 3) -> list[Kronecker]:
    """Curvatures of few directions each, which no one frame serves."""
    return [
        Kronecker(semidefinite(5, 2, seed + 2 * k) * 10, semidefinite(12, 4, seed + 2 * k + 1)) for k in range(count)
    ]


def divergence(approximate: Matrix, exact: Matrix) -> float:
    """KL of two normals with these precisions and one mean, in nats."""
    return 0.5 * float(approximate.trace_of(exact) - exact.size + approximate.logdet() - exact.logdet())


@pytest.mark.parametrize("check", testing.CHECKS)
@unhurried
@given(out=sizes, inp=sizes, seed=seeds)
def test_it_keeps_the_whole_contract(check, out, inp, seed):
    if check is testing.check_draws:
        out, inp, seed = 2, 3, 1  # hundreds of thousands of draws: once is enough
    check(turned(out, inp, seed))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_traces_against_every_structure_agree_with_dense_both_ways(structure):
    other = STRUCTURES[structure](3, 4, 0)
    testing.check_trace_of(turned(3, 4, 9), other)
    testing.check_trace_of(other, turned(3, 4, 9))


@pytest.mark.parametrize("structure", [*STRUCTURES, "turned"])
def test_entries_between_some_directions_are_those_of_the_dense_form(structure):
    matrix = every(structure, 3, 4, 2)
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(n, n, generator=generator, dtype=torch.float64) for n in (3, 4))
    index = torch.tensor([0, 3, 7, 11])
    both = torch.kron(left, right)
    expected = (both @ matrix.dense() @ both.mT)[index[:, None], index]
    torch.testing.assert_close(matrix.among(left, right, index), expected, rtol=1e-9, atol=1e-9)


@unhurried
@given(seed=seeds)
def test_a_sum_is_closer_than_in_a_plain_frame_and_never_below_its_floor(seed):
    terms, floor = coupled(seed), scaled_identity(0.5, (5, 12))
    exact = DenseMatrix(dense(*terms, floor), (5, 12))
    plain, better = in_one_frame(terms), in_turned_frame(terms, 0.5)
    assert isinstance(better, RotatedMatrix)
    lost = divergence(FlooredMatrix(better, 1.0, 0.5), exact)
    assert -1e-9 < lost < divergence(FlooredMatrix(plain, 1.0, 0.5), exact)
    torch.testing.assert_close(better.trace(), exact.trace() - 30, rtol=1e-9, atol=1e-9)
    assert float(torch.linalg.eigvalsh(FlooredMatrix(better, 1.0, 0.5).dense())[0]) >= 0.5 - 1e-9


@unhurried
@given(seed=seeds)
def test_the_log_det_is_between_the_exact_one_and_that_of_a_plain_frame(seed):
    """Fischer and Hadamard: what is dropped between directions only raises a determinant."""
    terms = coupled(seed)
    whole = dense(*terms, scaled_identity(0.5, (5, 12)))
    plain, better = (FlooredMatrix(x, 1.0, 0.5).logdet() for x in (in_one_frame(terms), in_turned_frame(terms, 0.5)))
    assert float(torch.linalg.slogdet(whole).logabsdet) - 1e-9 <= float(better) <= float(plain) + 1e-9


@unhurried
@given(sizes, sizes, seeds, kinds, kinds, st.floats(0.01, 100))
def test_a_posterior_is_never_below_its_floor_and_its_log_det_never_below_the_priors(
    out, inp, seed, before, data, floor
):
    prior = as_floored(every(before, out, inp, seed)).adjusted(floor=floor)
    joined = in_turned_frame([prior.curvature * prior.share, every(data, out, inp, seed + 5)], floor)
    posterior = FlooredMatrix(joined, 1.0, floor)
    assert torch.linalg.eigvalsh(posterior.dense().double())[0] >= floor * (1 - 1e-9)
    assert float(posterior.logdet()) >= float(prior.logdet()) - 1e-6 * out * inp


def test_where_a_plain_frame_is_exact_nothing_is_turned():
    assert isinstance(in_turned_frame([pair(4, 6, 0)], 1.0), JointEigen)
    assert isinstance(in_turned_frame([pair(4, 6, 0), scaled_identity(1.0, (4, 6))], 1.0), JointEigen)


def test_the_error_told_is_the_frobenius_norm_of_what_is_left_out():
    terms = coupled(3)
    first = in_turned_frame(terms[:2], 0.1)
    for given_terms in (terms, [first, terms[2]]):
        joined, whole = in_turned_frame(given_terms, 5.0), dense(*given_terms)
        expected = torch.linalg.norm(joined.dense() - whole) / torch.linalg.norm(whole)
        assert frame_error(given_terms, joined) == pytest.approx(float(expected), abs=1e-6)


def test_a_turned_frame_is_a_term_of_further_sums():
    terms = coupled(4)
    exact = DenseMatrix(dense(*terms, scaled_identity(1.0, (5, 12))), (5, 12))
    one = in_one_frame([in_one_frame(terms[:2]), terms[2]])
    two = in_turned_frame([in_turned_frame(terms[:2], 1.0), terms[2]], 1.0)
    assert divergence(FlooredMatrix(two, 1.0, 1.0), exact) < divergence(FlooredMatrix(one, 1.0, 1.0), exact)
    back = in_one_frame([two])
    assert isinstance(back, JointEigen)
    torch.testing.assert_close(back.trace(), two.trace())


def test_it_is_a_curvature_with_a_floor_as_it_is():
    matrix = turned(3, 4, 1)
    family = as_floored(matrix)
    torch.testing.assert_close(family.dense(), matrix.dense())
    other = family.adjusted(share=0.3, floor=2.0)
    expected = 0.3 * matrix.dense() + 2 * torch.eye(12, dtype=torch.float64)
    torch.testing.assert_close(other.dense(), expected)


def test_its_plain_frame_has_its_diagonal():
    matrix = turned(3, 4, 5)
    left, right = matrix.frame_of.left.matrix.mT, matrix.frame_of.right.matrix.mT
    torch.testing.assert_close(matrix.plain().values, matrix.diagonal_in(left, right))


def test_what_is_no_turned_frame_is_refused():
    good = turned(2, 3, 0)
    skew = pair(2, 3, 0).joint(pair(2, 3, 1))
    with pytest.raises(NotExact, match="orthogonal"):
        RotatedMatrix(skew, good.index, good.vectors)
    with pytest.raises(NotSquare, match="3 directions"):
        RotatedMatrix(good.frame_of, good.index, good.vectors[:, :2])
    for index in ([0, 0, 1], [0, 1, 6], [-1, 0, 1], [2, 1, 0]):
        with pytest.raises(SizeMismatch, match="from 0 to 5"):
            RotatedMatrix(good.frame_of, torch.tensor(index), good.vectors)
    for index in (good.index.int(), good.index.double(), good.index.to(torch.uint8), good.index[None]):
        with pytest.raises(SizeMismatch, match="one row of int64"):
            RotatedMatrix(good.frame_of, index, good.vectors)
    with pytest.raises(NotExact, match="in_turned_frame"):
        good + pair(2, 3, 1)
    with pytest.raises(NotExact, match='join="frame"'):
        good.frame()
