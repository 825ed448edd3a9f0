"""Files that a call passes through: `python tests/docs/journeys.py` lists them."""

from __future__ import annotations

import pytest
from journeys import files_of, journeys

MOST = {
    "pt.learn": 46,
    "pt.learn of many": 41,
    "pt.train, pt.estimate, pt.update": 23,
    "fit.predict": 18,
    "fit.certify": 27,
    "bpnn.learn": 40,
}
"""As many as there are: a new file on the way of every user should replace another."""


@pytest.fixture(scope="module")
def found():
    return journeys()


@pytest.mark.parametrize("call", MOST)
def test_the_way_of_a_call_through_the_library_stays_short(found, call):
    assert 10 < len(found[call]) <= MOST[call]


def test_only_files_with_a_function_that_ran_are_counted():
    assert files_of(lambda: None) == []
