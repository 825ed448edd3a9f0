"""Adam in the prior's coordinates."""

from __future__ import annotations

import copy

import pytest
import torch
from made import HEAD, LATERALS, bpnn, dice, labelled, learned_prior, network, task

from posterity import BPNN, Scales, isotropic
from posterity.blocks import find_blocks, read_blocks
from posterity.errors import NoData
from posterity.laplace import train
from posterity.progressive.training import PriorAdam, prior_adam


def test_under_a_prior_of_unit_width_the_steps_are_those_of_torchs_adam() -> None:
    first = network(dtype=torch.float64)
    second = copy.deepcopy(first)
    x, y = labelled(0, 64, 5, 3)
    options = {"epochs": 8, "batch_size": 16, "validation": None, "progress": False}
    prior = isotropic(first, 1.0, "model")
    train(first, (x.double(), y), prior, optimiser=prior_adam(first, prior, 3e-3), generator=dice(), **options)
    train(second, (x.double(), y), prior, lr=3e-3, generator=dice(), **options)
    for p, q in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("temperature", [1e-4, 1e-8])
def test_however_narrow_the_prior_of_some_layers_training_leaves_its_start(temperature: float) -> None:
    """Plain Adam does not: its first step costs more under the cold blocks than all data can tell."""
    x, y = labelled(0, 64, 5, 3)
    ends = {}
    for name in ("plain", "ours"):
        model = network()
        prior = learned_prior(model)
        cold = prior.restricted(["2", "4"]).tempered(temperature)
        prior = type(prior)(prior.mean, {**prior.precision, **cold.precision})
        chosen = {"optimiser": prior_adam(model, prior, 1e-2)} if name == "ours" else {"lr": 1e-2}
        options = {"epochs": 30, "validation": None, "progress": False, "stop_after": 99}
        ends[name] = train(model, (x, y), prior, generator=dice(), **options, **chosen)
    assert ends["ours"].best > 20
    assert 0.7 < ends["ours"].final.objective / ends["ours"].epochs[0].objective < 0.95
    assert ends["ours"].final.objective < ends["plain"].final.objective
    if temperature < 1e-6:
        assert ends["plain"].best == 0


def test_a_step_is_short_in_the_directions_that_the_prior_holds() -> None:
    model = network(dtype=torch.float64)
    prior = learned_prior(model).tempered(1e-2)
    before = read_blocks(model, find_blocks(model))
    optimiser = prior_adam(model, prior, 0.1)([p for p in model.parameters() if p.requires_grad])
    assert isinstance(optimiser, PriorAdam)
    x, y = labelled(0, 16, 5, 3)
    torch.nn.functional.cross_entropy(model(x.double()), y).backward()
    optimiser.step()
    after = read_blocks(model, find_blocks(model))
    for name in before:
        moved = after[name] - before[name]
        # Adam's first step is ± lr in every coordinate: ½(step/spread)² nats for each.
        assert float(prior.precision[name].quadratic(moved)) == pytest.approx(0.01 * moved.numel(), rel=0.02)


def test_its_memory_is_kept_and_restored() -> None:
    model = network()
    prior = learned_prior(model)
    x, y = labelled(0, 16, 5, 3)

    def one(optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    first = prior_adam(model, prior, 0.01)(model.parameters())
    one(first)
    weights, memory = copy.deepcopy(model.state_dict()), copy.deepcopy(first.state_dict())
    one(first)
    expected = copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    second = prior_adam(model, prior, 0.01)(model.parameters())
    second.load_state_dict(memory)
    one(second)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in expected.items())


def test_of_several_priors_the_one_of_least_validation_loss_is_taken() -> None:
    model = network()
    # One holds the weights where they are, the other lets them learn.
    rigid, free = learned_prior(model).tempered(1e-9), learned_prior(model).tempered(10.0)
    options = {"epochs": 30, "lr": 2e-2, "batch_size": 64}
    learner = BPNN(model, rigid, LATERALS, HEAD, training=options, samples=5, scales=Scales())
    learned = learner.draft(task(0, n=128), prior=[rigid, free], progress=False)
    assert learned.prior.precision["columns.0.2"] is free.precision["2"]
    assert learner.tasks == ()
    learner.adopt(learned)
    assert learner.tasks == ("task 0",)
    bare = task(1)
    with pytest.raises(NoData, match="2 priors"):
        learner.draft(type(bare)("bare", bare.train, None, None, 3), prior=[rigid, free], progress=False)


def test_a_prior_around_zero_does_not_start_a_column_at_zero() -> None:
    model = network()
    learner = BPNN(model, isotropic(model, 1.0), LATERALS, HEAD, training={"epochs": 1, "lr": 1e-9}, scales=Scales())
    learned = learner.learn(task(0), progress=False)
    torch.testing.assert_close(learned.column.module[0].weight, model[0].weight, rtol=0, atol=1e-6)  # type: ignore[index]
    other = bpnn(training={"epochs": 1, "lr": 1e-9})
    learned = other.learn(task(0), progress=False)
    mean = learned.prior.mean["columns.0.0"][:, :-1]
    torch.testing.assert_close(learned.column.module[0].weight, mean.float(), rtol=0, atol=1e-6)  # type: ignore[index]
