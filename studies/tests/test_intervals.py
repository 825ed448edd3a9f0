"""One routine for all intervals: Student's t by the number of values, pairs by seed."""

import math

import pytest

from posterity_studies.shared.intervals import half_width, interval, paired, shown, student

# From a printed table of the distribution: 97.5 % quantiles by degrees of freedom.
PRINTED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 10: 2.228, 19: 2.093, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("freedom", "quantile"), PRINTED.items())
def test_quantiles_are_the_printed_ones(freedom, quantile):
    assert student(freedom + 1) == pytest.approx(quantile, abs=5e-4 * quantile)


def test_many_values_come_near_the_normal_quantile_from_above():
    assert 1.96 < student(10**6) == student(1000) < 1.963


def test_interval_of_five_is_students():
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3
    assert found.half == pytest.approx(2.776 * math.sqrt(2.5 / 5), rel=1e-6)
    assert (found.low, found.high) == (found.mean - found.half, found.mean + found.half)
    assert half_width(math.sqrt(2.5), 5) == pytest.approx(found.half)


def test_one_value_has_no_interval_and_none_has_no_mean():
    assert interval([7.0]).mean == 7
    assert math.isnan(interval([7.0]).half)
    assert all(map(math.isnan, interval([])))


def test_pairing_takes_the_seeds_that_both_have():
    assert paired({0: 3.0, 1: 4.0, 2: 9.0}, {0: 1.0, 1: 2.0}) == (2, 0)
    assert math.isnan(paired({0: 1.0}, {1: 1.0}).mean)


@pytest.mark.parametrize(
    ("found", "options", "text"),
    [
        ((87.26, 1.24), {}, "87.3 ± 1.2"),
        ((0.5, math.nan), {"digits": 2}, "0.50"),
        ((0.5, 0.25), {"digits": 2, "sign": True}, "+0.50 ± 0.25"),
        ((12345.6, 1000.4), {"digits": 0, "thousands": True}, "12,346 ± 1,000"),
        ((math.nan, math.nan), {}, "–"),
    ],
)
def test_an_interval_is_shown_with_as_many_digits_as_asked(found, options, text):
    assert shown(*found, **options) == text
