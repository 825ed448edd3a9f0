"""The study of small tables: splits do not overlap, rivals give what is measured, lines say what records hold."""

from __future__ import annotations

import numpy as np
import pytest

from posterity_studies.engine.declaration import Outcome, Record
from posterity_studies.shared.labelled.numbers import (
    REGRESSIONS,
    SETTLING_CLASSES,
    SETTLING_REGRESSIONS,
    WITH_CLASSES,
    numeric,
)
from posterity_studies.studies.tables.cells import MADE_UP, drawn
from posterity_studies.studies.tables.methods import RIVALS, candidates
from posterity_studies.studies.tables.reading import lines, verdict

pytest.importorskip("sklearn", reason="scikit-learn is not installed (posterity[scikit-learn])")


def test_no_reported_table_is_one_that_constants_were_settled_on():
    assert not (WITH_CLASSES | REGRESSIONS).keys() & (SETTLING_CLASSES | SETTLING_REGRESSIONS).keys()
    assert len(WITH_CLASSES) == len(REGRESSIONS) == 10


def test_words_become_indicators_and_gaps_means():
    found = numeric([["1", "a"], ["?", "b"], ["3", "c"]])
    np.testing.assert_allclose(found, [[1, 0, 0], [2, 1, 0], [3, 0, 1]])


@pytest.mark.parametrize("name", MADE_UP)
def test_no_row_that_is_learned_from_is_tested(name):
    task, other = drawn(name, 0), drawn(name, 1)
    learned = {tuple(row) for row in task.x.tolist()}
    assert len(learned) == 42
    assert not learned & {tuple(row) for row in task.new.tolist()}
    assert learned != {tuple(row) for row in other.x.tolist()}


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.filterwarnings("ignore")
def test_rivals_give_probabilities_or_normal_numbers_better_than_none(rival):
    task = drawn(MADE_UP[0], 0)
    mean, variance = RIVALS[rival](task)
    assert variance is None
    np.testing.assert_allclose(mean.sum(1), 1, rtol=1e-6)
    assert ((mean >= 0) & (mean <= 1)).all()
    assert (mean.argmax(1) == task.truth).mean() > 0.6
    if rival == "discriminant":
        return
    task = drawn(MADE_UP[1], 0)
    mean, variance = RIVALS[rival](task)
    assert (variance > 0).all()
    assert np.mean((mean - task.truth) ** 2) < np.mean(task.truth**2)


def test_candidates_are_those_of_the_estimator():
    found = candidates(drawn(MADE_UP[0], 0))
    assert set(found) == {"linear", "process", "forest", "boosted"}
    assert all(0 < measured["nll"] < 1 for measured in found.values())


def records(gap: float, spread: float = 0.01) -> list[Record]:
    """Every reported set in five splits, ours ahead by `gap` of all rivals, which differ by splits alike."""
    made = []
    for name in (*WITH_CLASSES, *REGRESSIONS):
        classes = 2 if name in WITH_CLASSES else 0
        for split in range(5):
            usual = {"accuracy" if classes else "rmse": 0.5, "seconds": 1.0}
            methods = {
                rival: {"nll": 1 + 0.3 * split, **usual} for rival in RIVALS if classes or rival != "discriminant"
            }
            methods["ours"] = {"nll": 1 + 0.3 * split - gap + spread * (-1) ** split, **usual}
            alone = {"linear": {"nll": 1 + 0.3 * split}}
            values = {"classes": classes, "train": 60, "test": 60, "ways": [], "methods": methods, "candidates": alone}
            arguments = {"who": "all", "split": split, "set": name, "edition": 1}
            made.append(Record("tables", "", arguments, values, 1.0, {}))
    return made


def test_lines_hold_where_ours_is_ahead_and_not_where_it_is_behind():
    assert all(line.holds for line in lines(records(0.1)))
    assert verdict(records(0.1)).outcome is Outcome.ours
    behind = lines(records(-0.1))
    assert [line.holds for line in behind if not line.asked.startswith("CPU")] == [False] * 5
    assert verdict(records(-0.1)).outcome is Outcome.unsupported
    # Behind by less than the noise of splits is not significantly behind.
    noisy = lines(records(-0.001, spread=0.1))
    assert noisy[0].holds
    assert "20 of 20" in noisy[0].found
