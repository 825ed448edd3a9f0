"""Sums in one eigenframe with values: what is exact, what is bounded, and how much closer than the nearest pair."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import STRUCTURES, pair, seeds, semidefinite, singular_pair, sizes

from posterity.algebra import (
    DenseMatrix,
    FlooredMatrix,
    Kronecker,
    KroneckerSum,
    Matrix,
    as_floored,
    frame_error,
    in_one_frame,
    nearest,
    scaled_identity,
)
from posterity.errors import EmptySum, NotExact

kinds = st.sampled_from(sorted(STRUCTURES))
unhurried = settings(deadline=None, max_examples=50)


def dense(*terms: Matrix) -> torch.Tensor:
    return torch.stack([term.dense().double() for term in terms]).sum(0)


@unhurried
@given(sizes, sizes, seeds, st.lists(kinds, min_size=1, max_size=4))
def test_the_trace_is_exact_and_no_value_is_below_the_least_eigenvalue(out, inp, seed, names):
    terms = [STRUCTURES[name](out, inp, seed + i) for i, name in enumerate(names)]
    joined, whole = in_one_frame(terms), dense(*terms)
    torch.testing.assert_close(joined.trace().double(), whole.diagonal().sum(), rtol=1e-9, atol=1e-9)
    low = torch.linalg.eigvalsh(whole)[0]
    assert torch.linalg.eigvalsh(joined.dense().double())[0] >= low - 1e-9 * whole.abs().max()


@unhurried
@given(sizes, sizes, seeds, kinds, kinds, st.floats(0.01, 100))
def test_a_posterior_is_never_below_its_floor_and_its_log_det_never_below_the_priors(
    out, inp, seed, before, data, floor
):
    prior = as_floored(STRUCTURES[before](out, inp, seed)).adjusted(floor=floor)
    posterior = FlooredMatrix(
        in_one_frame([prior.curvature * prior.share, STRUCTURES[data](out, inp, seed + 5)]), 1.0, floor
    )
    assert torch.linalg.eigvalsh(posterior.dense().double())[0] >= floor * (1 - 1e-9)
    # Hadamard: a diagonal read in another frame has no smaller determinant, and the data only adds to it.
    assert float(posterior.logdet()) >= float(prior.logdet()) - 1e-6 * out * inp


@unhurried
@given(sizes, sizes, seeds)
def test_a_pair_with_a_floor_is_exact(out, inp, seed):
    term = singular_pair(out, inp, seed)
    joined = in_one_frame([term, scaled_identity(0.7, (out, inp))])
    torch.testing.assert_close(
        joined.dense(), dense(term) + 0.7 * torch.eye(out * inp, dtype=torch.float64), rtol=1e-9, atol=1e-9
    )
    assert frame_error([term], in_one_frame([term])) < 1e-6


@unhurried
@given(sizes, sizes, seeds, st.integers(2, 3))
def test_the_error_told_is_the_frobenius_norm_of_what_is_left_out(out, inp, seed, count):
    terms = [pair(out, inp, seed + i) for i in range(count)]
    joined, whole = in_one_frame(terms), dense(*terms)
    expected = torch.linalg.norm(joined.dense() - whole) / torch.linalg.norm(whole)
    assert frame_error(terms, joined) == pytest.approx(float(expected), abs=1e-6)


def test_it_keeps_what_the_nearest_pair_loses():
    """A floor beside curvatures of few directions: log dets by the hundred nats, and draws that differ by the same."""
    first = Kronecker(semidefinite(6, 3, 0) * 30, semidefinite(20, 8, 1))
    second = Kronecker(semidefinite(6, 2, 2), semidefinite(20, 10, 3))
    floor = scaled_identity(1.0, (6, 20))
    exact = DenseMatrix(dense(first, second, floor), (6, 20))
    frame = in_one_frame([first, second, floor])
    one_pair = nearest(KroneckerSum([first, second, Kronecker(torch.eye(6).double(), torch.eye(20).double())]))

    def divergence(approximate: Matrix) -> float:
        return 0.5 * float(approximate.trace_of(exact) - exact.size + approximate.logdet() - exact.logdet())

    assert divergence(one_pair.jittered(1e-6)) > 10 * divergence(frame)


def test_every_precision_becomes_a_curvature_with_a_floor():
    for name, build in STRUCTURES.items():
        matrix = build(2, 3, 0)
        family = as_floored(matrix)
        if name not in ("joint eigen", "sum of two", "sum of three"):
            torch.testing.assert_close(family.dense().double(), matrix.dense().double())
        torch.testing.assert_close(family.trace().double(), matrix.trace().double())


def test_what_has_no_floored_form_is_refused():
    with pytest.raises(NotExact, match="in_one_frame"):
        FlooredMatrix(pair(2, 3, 0) + pair(2, 3, 1))
    with pytest.raises(NotExact, match="orthogonal"):
        FlooredMatrix(pair(2, 3, 0).joint(pair(2, 3, 1)))
    with pytest.raises(ValueError, match="floor of a prior"):
        FlooredMatrix(scaled_identity(1.0, (2, 3)), 1.0, -1.0)
    with pytest.raises(EmptySum):
        in_one_frame([])
