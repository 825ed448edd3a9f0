"""A head that is fitted before its column, and columns that predict as networks linear in their weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from made import HEAD, QUICK, bpnn, dice, network, pnn, task
from torch.nn.functional import cross_entropy

from posterity import BPNN, isotropic
from posterity.errors import NoData
from posterity.progressive.task import Task
from posterity.progressive.training import fit_head

TEMPERATURES = (1.0, 1e-2, 1e-8)


def test_the_head_comes_to_the_mode_of_its_posterior_and_nothing_else_moves() -> None:
    model = network(dtype=torch.float64)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    x, y = task(0).train
    prior = isotropic(model, 3.0)
    fit_head(model, HEAD, (x.double(), y), task(0).likelihood, prior)
    head = model[6]
    loss = cross_entropy(model(x.double()), y, reduction="sum") + 1.5 * sum(p.square().sum() for p in head.parameters())
    slopes = torch.autograd.grad(loss, list(head.parameters()))
    assert max(float(s.abs().max()) for s in slopes) < 1e-4
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {f"{HEAD}.weight", f"{HEAD}.bias"}
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("make", [bpnn, pnn])
def test_a_column_whose_head_came_first_starts_with_a_smaller_loss(make) -> None:
    first = {}
    for head_first in (False, True):
        learner = make(training=QUICK | {"lr": 1e-6, "validation": None, "head_first": head_first})
        for number in range(2):
            first[head_first] = learner.learn(task(number), progress=False).history.epochs[0].nll
    assert first[True] < 0.8 * first[False]


def test_linear_draws_choose_the_temperature_and_make_the_prediction(tmp_path: Path) -> None:
    learner = bpnn(predictive="jvp", temperatures=TEMPERATURES)
    for number in range(2):
        learner.learn(task(number), progress=False)
    x = task(1).test[0]  # type: ignore[index]
    found = learner.predict(x, "task 1", generator=dice())
    assert not torch.allclose(found.probs, learner.predict(x, "task 1", generator=dice(), method="sampled").probs)
    learner.save(tmp_path)
    again = BPNN.load(tmp_path, network())
    assert again.predictive == "jvp"
    assert torch.equal(again.predict(x, "task 1", generator=dice()).probs, found.probs)


def test_linear_draws_ask_for_validation_data_too() -> None:
    unwatched = Task("alone", task(0).train, classes=3)
    with pytest.raises(NoData, match="validation"):
        bpnn(predictive="jvp", temperatures=TEMPERATURES).learn(unwatched, progress=False)
