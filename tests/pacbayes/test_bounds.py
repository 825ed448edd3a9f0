"""Bounds are what they should be at the ends, beside each other, and against a brute-force search."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity.pacbayes import (
    binary_kl,
    catoni,
    catoni_best,
    klinv,
    lambda_bound,
    maurer,
    mcallester,
    quadratic,
)

risks = st.floats(0, 1)
kls = st.floats(0, 1e6)
counts = st.integers(1, 10**7)
many = settings(max_examples=200, deadline=None)


@many
@given(q=risks, c=st.floats(0, 50))
def test_klinv_is_the_upper_end_of_the_allowed_risks(q, c):
    p = klinv(q, c)
    assert q <= p <= 1
    if p < 1:
        # The value itself is just outside, and the next smaller number is not.
        assert binary_kl(q, p) > c
        assert binary_kl(q, max(q, math.nextafter(p, 0))) <= c


@pytest.mark.parametrize(
    ("q", "c", "p"), [(0.0, 0.0, 0.0), (1.0, 3.0, 1.0), (0.3, math.inf, 1.0), (0.0, math.log(2), 0.5)]
)
def test_klinv_is_exact_at_the_ends(q, c, p):
    assert klinv(q, c) == pytest.approx(p, abs=1e-15)


@many
@given(q=st.floats(0, 0.99), c=st.floats(1e-6, 5))
def test_klinv_is_the_infimum_of_catoni_over_c(q, c):
    # With n = 1 and δ = e^-c·…: (KL + ln 1/δ)/n = c.
    value, _ = catoni_best(q, max(0.0, c - math.log(2)), 1, 0.5) if c >= math.log(2) else (None, None)
    if value is not None:
        assert value == pytest.approx(klinv(q, c), rel=1e-5)


@many
@given(risk=risks, kl=kls, n=counts, delta=st.floats(1e-6, 0.5))
def test_maurer_is_never_above_the_relaxations_derived_from_it(risk, kl, n, delta):
    tight = maurer(risk, kl, n, delta)
    for looser in (mcallester, quadratic, lambda_bound):
        assert tight <= looser(risk, kl, n, delta) * (1 + 1e-9) + 1e-12


@many
@given(risk=risks, kl=st.floats(0, 1e4), n=st.integers(10, 10**6))
def test_bounds_grow_with_kl_and_shrink_with_data(risk, kl, n):
    for bound in (maurer, mcallester, quadratic, lambda_bound):
        assert bound(risk, kl + 10, n, 0.05) >= bound(risk, kl, n, 0.05)
        assert bound(risk, kl, 2 * n, 0.05) <= bound(risk, kl, n, 0.05) * (1 + 1e-12)


@pytest.mark.parametrize("risk", [0.0, 0.01, 0.4])
def test_the_lambda_bound_is_the_least_over_a_fine_grid(risk):
    n, kl, delta = 1000, 30.0, 0.05
    x = (kl + math.log(2 * math.sqrt(n) / delta)) / n
    grid = (i / 5000 for i in range(1, 10000))
    least = min(risk / (1 - lam / 2) + x / (lam * (1 - lam / 2)) for lam in grid)
    assert lambda_bound(risk, kl, n, delta) == pytest.approx(least, rel=1e-5)


def test_catoni_at_its_best_c_beats_a_fine_grid_of_c():
    value, c = catoni_best(0.1, 50.0, 1000, 0.05)
    assert value <= min(catoni(0.1, 50.0, 1000, 0.05, 0.01 * i) for i in range(1, 2000)) + 1e-12
    assert value == pytest.approx(catoni(0.1, 50.0, 1000, 0.05, c))


@pytest.mark.parametrize("kl", [0.0, 1e300, math.inf])
def test_huge_divergences_give_one_or_infinity_and_never_nan(kl):
    assert maurer(0.5, kl, 100, 0.05) <= 1
    for bound in (mcallester, quadratic, lambda_bound):
        assert not math.isnan(bound(0.5, kl, 100, 0.05))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: klinv(-0.1, 1.0),
        lambda: klinv(0.5, -1.0),
        lambda: klinv(math.nan, 1.0),
        lambda: maurer(0.1, -1.0, 10, 0.05),
        lambda: maurer(0.1, math.nan, 10, 0.05),
        lambda: maurer(0.1, 1.0, 0, 0.05),
        lambda: maurer(0.1, 1.0, 10, 1.0),
        lambda: catoni(0.1, 1.0, 10, 0.05, 0.0),
    ],
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="not"):
        wrong()
