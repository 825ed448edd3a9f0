"""The nearest pair: optimal, positive semidefinite, and the same by three roads."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import definite, pair, seeds, semidefinite, sizes

from posterity.algebra import Kronecker, KroneckerSum, nearest, relative_error
from posterity_studies.shared.power_method import factorwise_sum, power_history, power_method

many = settings(max_examples=60, deadline=None)
counts = st.integers(1, 5)


def total_of(k: int, out: int, inp: int, seed: int, batch: tuple[int, ...] = ()) -> KroneckerSum:
    """Terms of full and of deficient rank, mixed."""
    return KroneckerSum(
        [
            Kronecker(
                semidefinite(out, 1 + (seed + i) % (out + 1), seed + i, batch),
                semidefinite(inp, 1 + (seed + 2 * i) % (inp + 1), seed + 50 + i, batch),
            )
            for i in range(k)
        ]
    )


def by_svd(total: KroneckerSum) -> tuple[torch.Tensor, torch.Tensor]:
    """The leading term of the rearranged matrix (Lemma 2), and all singular values."""
    rearranged = sum(t.left.flatten()[:, None] * t.right.flatten() for t in total.terms)
    u, s, v = torch.linalg.svd(rearranged, full_matrices=False)
    return s[0] * u[:, :1] * v[:1], s


def rearranged(pair: Kronecker) -> torch.Tensor:
    return pair.left.flatten()[:, None] * pair.right.flatten()


@many
@given(k=counts, out=sizes, inp=sizes, seed=seeds)
def test_closed_form_is_the_leading_singular_pair_of_the_rearranged_matrix(k, out, inp, seed):
    total = total_of(k, out, inp, seed)
    expected, spectrum = by_svd(total)
    result = nearest(total)
    if len(spectrum) == 1 or spectrum[1] < 0.999 * spectrum[0]:
        assert torch.linalg.norm(rearranged(result) - expected) <= 1e-10 * spectrum[0]
    # Where the leading value is (nearly) double the pair is not unique, but the error is.
    rest = spectrum[1:].square().sum().sqrt() / spectrum.square().sum().sqrt()
    torch.testing.assert_close(relative_error(total, result), rest, rtol=1e-8, atol=1e-12)


@many
@given(k=counts, out=sizes, inp=sizes, seed=seeds)
def test_semidefinite_terms_give_semidefinite_factors(k, out, inp, seed):
    result = nearest(total_of(k, out, inp, seed))
    for factor in (result.left, result.right):
        values = torch.linalg.eigvalsh(factor)
        assert values[0] >= -1e-14 * values[-1]


@many
@given(k=counts, out=sizes, inp=sizes, seed=seeds)
def test_relative_error_agrees_with_dense(k, out, inp, seed):
    total, other = total_of(k, out, inp, seed), pair(out, inp, seed)
    expected = torch.linalg.norm(total.dense() - other.dense()) / torch.linalg.norm(total.dense())
    torch.testing.assert_close(relative_error(total, other), expected, rtol=1e-10, atol=1e-13)


@settings(max_examples=20, deadline=None)
@given(k=st.integers(2, 4), seed=seeds)
def test_no_nudge_of_either_factor_comes_closer(k, seed):
    total = total_of(k, 3, 4, seed)
    best = nearest(total)
    error = relative_error(total, best)
    generator = torch.Generator().manual_seed(seed)
    for size, side in itertools.product((-1e-3, 1e-3), ("left", "right")):
        factor = getattr(best, side)
        nudge = torch.randn(factor.shape, generator=generator, dtype=torch.float64)
        moved = factor + size * torch.linalg.norm(factor) * (nudge + nudge.mT)
        other = Kronecker(moved, best.right) if side == "left" else Kronecker(best.left, moved)
        assert relative_error(total, other) > error


def test_converged_power_method_is_the_closed_form():
    total = KroneckerSum([pair(4, 5, s) for s in range(3)])
    iterated = power_method(total, steps=1000, tol=1e-14, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(iterated.dense(), nearest(total).dense(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.linalg.norm(iterated.left), torch.tensor(1.0).double())


def test_power_method_stops_by_the_published_rule_and_tells_its_errors():
    total = KroneckerSum([pair(5, 5, s, (6,)) for s in range(3)])
    generator = torch.Generator().manual_seed(1)
    history = power_history(total, generator=generator)
    assert history.errors.shape == (int(history.iterations.max()) + 1, 6)
    assert (history.errors[1:] <= history.errors[:-1] + 1e-12).all()
    assert (history.errors[0] > history.errors[-1]).all()
    torch.testing.assert_close(history.errors[-1], relative_error(total, nearest(total)), rtol=1e-6, atol=0)
    again = power_method(total, generator=torch.Generator().manual_seed(1))
    assert torch.equal(again.left, history.pair.left)
    one = power_history(total, steps=1, generator=torch.Generator().manual_seed(1))
    assert (one.iterations == 1).all()


def test_a_batch_is_its_elements_one_by_one():
    total = total_of(3, 3, 4, 11, (5,))
    together = nearest(total)
    for i in range(5):
        alone = nearest(KroneckerSum([Kronecker(t.left[i], t.right[i]) for t in total.terms]))
        torch.testing.assert_close(together.left[i], alone.left)
        torch.testing.assert_close(together.right[i], alone.right)


@pytest.mark.parametrize("scale", [1e-10, 1e10])
def test_factor_scales_far_apart_change_nothing(scale):
    plain = KroneckerSum([pair(3, 4, s) for s in range(3)])
    lopsided = KroneckerSum(
        [Kronecker(t.left * scale**i, t.right / scale**i) for i, t in zip((1, -1, 0), plain.terms, strict=True)]
    )
    expected = nearest(plain).dense()
    torch.testing.assert_close(nearest(lopsided).dense(), expected, rtol=1e-10, atol=1e-10)
    assert float(relative_error(lopsided, nearest(plain)) - relative_error(plain, nearest(plain))) == pytest.approx(
        0, abs=1e-12
    )


def test_a_single_product_written_as_many_terms_is_recovered_to_rounding():
    one = pair(4, 3, 0)
    total = KroneckerSum([one * w for w in (0.1, 2.0, 5.0)])
    assert relative_error(total, nearest(total)) < 1e-14


def test_zero_terms_contribute_nothing_and_all_zeros_stay_zero():
    zero = Kronecker(torch.zeros(3, 3).double(), definite(2, 0))
    some = pair(3, 2, 1)
    torch.testing.assert_close(nearest(KroneckerSum([zero, some])).dense(), some.dense())
    assert not nearest(KroneckerSum([zero, zero])).dense().any()
    assert relative_error(KroneckerSum([zero, zero]), zero) == 0


def test_one_by_one_factors_are_plain_numbers():
    terms = [Kronecker(torch.tensor([[a]]).double(), torch.tensor([[b]]).double()) for a, b in ((2, 3), (0.5, 4))]
    torch.testing.assert_close(nearest(KroneckerSum(terms)).dense(), torch.tensor([[8.0]]).double())


def test_both_factors_share_the_norm_evenly():
    result = nearest(KroneckerSum([pair(4, 5, s) for s in range(2)]))
    torch.testing.assert_close(torch.linalg.norm(result.left), torch.linalg.norm(result.right))


def test_closed_form_is_differentiable():
    base = [pair(2, 3, s) for s in range(3)]

    def entries(*factors: torch.Tensor) -> torch.Tensor:
        symmetric = [(x + x.mT) / 2 for x in factors]
        terms = [Kronecker(a, b) for a, b in zip(symmetric[:3], symmetric[3:], strict=True)]
        return nearest(KroneckerSum(terms)).dense()

    inputs = [x.clone().requires_grad_() for x in (*(t.left for t in base), *(t.right for t in base))]
    assert torch.autograd.gradcheck(entries, inputs)


def test_factorwise_sum_counts_the_cross_terms():
    a, b = pair(2, 3, 0), pair(2, 3, 1)
    cross = Kronecker(a.left, b.right).dense() + Kronecker(b.left, a.right).dense()
    torch.testing.assert_close(factorwise_sum(a + b).dense(), (a + b).dense() + cross)


@pytest.mark.slow
def test_the_largest_side_of_resnet50_is_handled():
    terms = [Kronecker(semidefinite(512, 40, s), semidefinite(4608, 40, s)) for s in range(2)]
    total = KroneckerSum(terms)
    result = nearest(total)
    assert 0 < float(relative_error(total, result)) < 1
    identity = Kronecker(torch.eye(512).double(), torch.eye(4608).double())
    assert torch.isfinite((identity + terms[0]).logdet())


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_pair_of_a_joint_eigenbasis_is_that_of_its_terms(seed):
    prior, curvature = pair(3, 4, seed), Kronecker(semidefinite(3, 2, seed), semidefinite(4, 2, seed + 9))
    joint = prior.joint(curvature).combine(0.4, 1.7)
    terms = KroneckerSum([prior * 0.4, curvature * 1.7])
    torch.testing.assert_close(nearest(joint).dense(), nearest(terms).dense(), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        relative_error(joint, nearest(joint)), relative_error(terms, nearest(terms)), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("ratio", [1.0, 0.999, 0.9])
def test_where_the_largest_singular_values_are_close_the_power_method_ends_in_their_span(ratio):
    """The paper's remark on σ₁ ≈ σ₂: no convergence is needed for a pair that is nearly as good as any."""
    units = [torch.diag(row) for row in torch.eye(4, dtype=torch.float64)]
    sigmas = [1.0, ratio, 0.1, 0.05]
    total = KroneckerSum([Kronecker(unit, sigma * unit) for unit, sigma in zip(units, sigmas, strict=True)])
    for seed in range(20):
        pair = power_method(total, generator=torch.Generator().manual_seed(seed))
        outside = pair.left.diagonal()[2:].norm() / pair.left.norm()
        assert float(outside) < 1e-3
        best = relative_error(total, nearest(total))
        worst = math.sqrt(1 - ratio**2 / sum(s**2 for s in sigmas))
        assert best - 1e-9 <= float(relative_error(total, pair)) <= worst + 1e-6
