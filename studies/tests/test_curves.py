"""Curves over examples a class and over temperatures."""

from __future__ import annotations

import pytest

from posterity_studies.shared.curves import cold_posterior, small_data


def test_a_curve_for_each_method_with_bars_where_there_are_seeds() -> None:
    drawn = small_data([1, 10], {"one": [0.1, 0.9], "more": [[0.2, 0.8], [0.4, 0.9]]})
    assert len(drawn.containers) == 1
    plain, mean = (line.get_ydata() for line in drawn.get_lines()[:2])
    assert list(plain) == [0.1, 0.9]
    assert list(mean) == pytest.approx([0.3, 0.85])
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == ["one", "more"]  # type: ignore[union-attr]


def test_temperatures_are_on_a_logarithmic_axis() -> None:
    assert cold_posterior([0.1, 1.0], {"one": [0.1, 0.9]}).get_xscale() == "log"


def test_curves_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(ValueError, match='"one" has values of shape'):
        small_data([1, 10], {"one": [0.1, 0.2, 0.3]})
