"""What is wrong is named, and the learner stays as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from made import HEAD, LATERALS, QUICK, bpnn, dice, learned_prior, network, pnn, task
from torch import nn

from posterity import BPNN, Task
from posterity.errors import (
    BadHead,
    BadLateral,
    BadTargets,
    BlockMismatch,
    NoData,
    NotFinite,
    PosterityError,
    RepeatedTask,
    UnknownTask,
)
from posterity.progressive import Stream
from posterity_studies.shared.continual import PNN, Learner


@pytest.mark.parametrize(
    ("laterals", "message"),
    [
        (["nowhere"], 'there is no module "nowhere"'),
        (["layer*"], 'there is no module "layer*"'),
        (["1"], '"1" is a Tanh, not a weighted layer'),
        (["6"], '"6" is the head, whose size changes from task to task'),
    ],
)
def test_a_lateral_that_cannot_be_is_refused(laterals: list[str], message: str) -> None:
    with pytest.raises(BadLateral, match=message.replace("*", r"\*")):
        PNN(network(), laterals, HEAD)
    with pytest.raises(BadLateral):
        BPNN(network(), learned_prior(network()), laterals, HEAD)


def test_a_pattern_takes_all_weighted_layers_but_the_head() -> None:
    assert PNN(network(), "*", HEAD).architecture.laterals == ("0", "2", "4")
    assert PNN(network(), ["[24]"], HEAD).architecture.laterals == ("2", "4")
    assert PNN(network(), ["4", "2"], HEAD).architecture.laterals == ("2", "4")


def test_an_exact_path_is_not_read_as_a_pattern() -> None:
    model = nn.ModuleDict({"a[1]": nn.Linear(4, 4), "a1": nn.Linear(4, 4), "head": nn.Linear(4, 2)})
    assert PNN(model, ["a[1]"], "head").architecture.laterals == ("a[1]",)


@pytest.mark.parametrize("head", ["nowhere", "1", ""])
def test_a_head_that_cannot_be_is_refused(head: str) -> None:
    with pytest.raises(BadHead, match="head"):
        PNN(network(), LATERALS, head)


def test_a_network_without_a_linear_layer_needs_its_head_named() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 1))
    with pytest.raises(BadHead, match="head="):
        PNN(model, [], None)
    assert PNN(model, ["0"], "1").architecture.head == "1"


def test_a_prior_that_does_not_fit_is_refused_at_once() -> None:
    with pytest.raises(BlockMismatch, match="refit the prior"):
        BPNN(network(), learned_prior(network()).without("2"), LATERALS, HEAD)
    wide = nn.Sequential(nn.Linear(4, 9), *list(network())[1:])
    with pytest.raises(BlockMismatch):
        BPNN(network(), learned_prior(wide), LATERALS, HEAD)


def wrong_tasks() -> list[tuple[Task, type[PosterityError], str]]:
    good = task(5)
    x, y = good.train  # type: ignore[misc]
    bad_x = x.clone()
    bad_x[0, 0] = float("nan")
    return [
        (Task("empty", (x[:0], y[:0]), None, None, 3), NoData, 'the training data of task "empty"'),
        (Task("outside", (x, y + 1), None, None, 3), BadTargets, "labels from 1 to 3 and its head 3 outputs"),
        (Task("below", (x, y - 1), None, None, 3), BadTargets, "labels from -1 to 1"),
        (Task("held", (x, y), (x, y + 1), None, 3), BadTargets, 'the validation data of task "held"'),
        (Task("headless", (x, y), None, None, 0), BadTargets, "0 classes"),
        (Task("task 0", (x, y), None, None, 3), RepeatedTask, '"task 0" has been learned already'),
        (Task("nan", (bad_x, y), None, None, 3), NotFinite, 'the training data of task "nan": the inputs hold 1 NaN'),
        (Task("loader", [(x[:8], y[:8] + 7)], None, None, 3), BadTargets, "labels reach from"),
    ]


@pytest.mark.parametrize("make", [bpnn, pnn])
@pytest.mark.parametrize("wrong", wrong_tasks(), ids=lambda w: w[0].name)
def test_a_task_that_cannot_be_learned_leaves_the_learner_unchanged(
    make: Callable[[], Learner], wrong: tuple[Task, type[PosterityError], str]
) -> None:
    learner = make()
    learner.learn(task(0), progress=False)
    x = torch.randn(4, 4)
    before = learner.predict(x, "task 0", generator=dice()).probs
    coming, error, message = wrong
    with pytest.raises(error, match=message):
        learner.learn(coming, progress=False)
    assert learner.tasks == ("task 0",)
    assert torch.equal(learner.predict(x, "task 0", generator=dice()).probs, before)


def test_after_a_refused_task_the_next_is_learned_as_if_nothing_had_been() -> None:
    tried, clean = bpnn(), bpnn()
    x, y = task(5).train  # type: ignore[misc]
    x = x.clone()
    x[0, 0] = float("nan")
    for learner in (tried, clean):
        learner.learn(task(0), progress=False)
    with pytest.raises(NotFinite):
        tried.learn(Task("nan", (x, y), None, None, 3), progress=False)
    for learner in (tried, clean):
        learner.learn(task(1), progress=False)
    first, second = (one.predict(torch.ones(4, 4), "task 1", generator=dice()).probs for one in (tried, clean))
    assert torch.equal(first, second)


@pytest.mark.parametrize("make", [bpnn, pnn])
def test_an_unknown_task_is_named(make: Callable[[], Learner]) -> None:
    learner = make()
    with pytest.raises(UnknownTask, match='no task "apple"'):
        learner.predict(torch.randn(2, 4), "apple")
    learner.learn(task(0), progress=False)
    with pytest.raises(UnknownTask, match=r"there are \['task 0'\]"):
        learner.predict(torch.randn(2, 4), "apple")


def test_certifying_needs_a_known_task_and_data() -> None:
    learner = bpnn()
    with pytest.raises(UnknownTask):
        learner.certify(task(0))
    learner.learn(task(0), progress=False)
    with pytest.raises(NoData, match="needs data"):
        learner.certify("task 0")


def test_choosing_a_temperature_needs_validation_data() -> None:
    learner = bpnn(temperatures=(1.0, 0.1))
    x, y = task(0).train  # type: ignore[misc]
    with pytest.raises(NoData, match="validation"):
        learner.learn(Task("bare", (x, y), None, None, 3), progress=False)
    assert learner.tasks == ()


def test_a_stream_has_no_name_twice() -> None:
    with pytest.raises(RepeatedTask, match="task 1"):
        Stream("twice", [task(1), task(1)])


def test_frozen_layers_cannot_have_laterals() -> None:
    model = network()
    model[2].requires_grad_(False)
    with pytest.raises(BadLateral):
        PNN(model, ["2"], HEAD, training=QUICK)
