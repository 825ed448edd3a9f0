"""What is read off the matrix R[i][j], and streams of made data."""

from __future__ import annotations

import math

import pytest
import torch
from made import pnn, task

from posterity import Task
from posterity.errors import NoData
from posterity.progressive import Stream
from posterity_studies.shared.continual import Continual, Judgement, follow, judge
from posterity_studies.shared.continual.drawing import continual
from posterity_studies.shared.continual.metrics import average_accuracy, backward_transfer, forgetting, forward_transfer
from posterity_studies.shared.streams import permuted, split_by_class

NAN = math.nan
R = [[0.9, NAN, NAN], [0.8, 0.7, NAN], [0.85, 0.6, 0.95]]


def test_accuracy_and_transfer_as_published() -> None:
    assert average_accuracy(R) == pytest.approx((0.85 + 0.6 + 0.95) / 3)
    assert backward_transfer(R) == pytest.approx(((0.85 - 0.9) + (0.6 - 0.7)) / 2)
    assert forgetting(R) == pytest.approx(((0.9 - 0.85) + (0.7 - 0.6)) / 2)


def test_forgetting_counts_from_the_best_time_not_the_first() -> None:
    r = [[0.5, NAN, NAN], [0.9, 0.7, NAN], [0.6, 0.7, 0.8]]
    assert forgetting(r) == pytest.approx((0.3 + 0.0) / 2)
    assert backward_transfer(r) == pytest.approx((0.1 + 0.0) / 2)


def test_forward_transfer_compares_with_tasks_learned_alone() -> None:
    assert forward_transfer(R, [0.9, 0.65, 0.9]) == pytest.approx((0.05 + 0.05) / 2)
    zero_shot = [[0.9, 0.4, 0.3], [0.8, 0.7, 0.5], [0.8, 0.7, 0.9]]
    assert forward_transfer(zero_shot, [0.3, 0.3, 0.3]) == pytest.approx((0.1 + 0.2) / 2)


def test_a_single_task_has_no_transfer() -> None:
    assert math.isnan(backward_transfer([[0.5]]))
    assert math.isnan(forward_transfer([[0.5]], [0.4]))
    assert average_accuracy([[0.5]]) == 0.5


def test_the_matrix_is_full_below_the_diagonal_and_empty_above() -> None:
    found = follow(pnn(), Stream("two", [task(0), task(1)]), progress=False)
    assert found.tasks == ("task 0", "task 1")
    assert found.matrix[0][1] is None
    assert all(isinstance(found.matrix[i][j], Judgement) for i in range(2) for j in range(i + 1))
    assert found.acc == pytest.approx(sum(found.accuracies()[1]) / 2)
    assert found.nll > 0
    assert 0 <= found.ece <= 1
    assert found.bwt == found.forgetting == 0
    assert not math.isnan(found.fwt([0.5, 0.5]))


def test_an_empty_stream_and_a_task_without_test_data_are_named() -> None:
    with pytest.raises(NoData, match="no task"):
        follow(pnn(), [])
    learner = pnn()
    bare = Task("bare", task(0).train, None, None, 3)
    learner.learn(bare, progress=False)
    with pytest.raises(NoData, match='"bare" has no test data'):
        judge(learner, bare)


def test_splitting_by_class_labels_each_group_from_zero() -> None:
    x, y = torch.arange(12.0)[:, None], torch.arange(12) % 6
    stream = split_by_class("made", (x, y), None, (x, y), [(0, 1), (5, 2)])
    assert [t.name for t in stream] == ["made 0/1", "made 5/2"]
    assert stream[1].train[1].tolist() == [1, 0, 1, 0]  # type: ignore[index]
    assert stream[1].train[0].flatten().tolist() == [2.0, 5.0, 8.0, 11.0]  # type: ignore[index]
    assert stream[0].validation is None
    with pytest.raises(NoData, match="no example of the classes"):
        split_by_class("made", (x, y), None, None, [(8, 9)])


def test_permuting_keeps_every_pixel_and_the_first_task_as_it_is() -> None:
    x, y = torch.rand(6, 1, 4, 4), torch.arange(6) % 3
    stream = permuted("made", (x, y), None, (x, y), 3, torch.Generator().manual_seed(0))
    assert len(stream) == 3
    assert torch.equal(stream[0].train[0], x)  # type: ignore[index]
    for one in stream.tasks[1:]:
        moved = one.train[0]  # type: ignore[index]
        assert not torch.equal(moved, x)
        torch.testing.assert_close(moved.flatten(1).sort(1).values, x.flatten(1).sort(1).values)
        assert torch.equal(one.train[0], one.test[0])  # type: ignore[index]
    assert stream[2].classes == 3


@pytest.mark.parametrize("measure", ["accuracy", "nll"])
def test_a_stream_is_drawn_with_a_number_for_each_task_that_was_learned(measure: str) -> None:
    rows = [[0.9, None, None], [0.8, 0.95, None], [0.7, 0.9, 0.99]]
    made = tuple(tuple(None if v is None else Judgement(v, 1 - v, 0.1) for v in row) for row in rows)
    drawn = continual(Continual(("a", "b", "c"), made), measure=measure)  # type: ignore[arg-type]
    assert len(drawn.texts) == 6
    assert drawn.texts[-1].get_text() == ("99" if measure == "accuracy" else "0.01")
