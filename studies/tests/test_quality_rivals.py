"""The rivals of the quality study do what their papers say."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from posterity_studies.shared.rivals.absent import RivalMissing, library
from posterity_studies.shared.rivals.training import (
    NEW_HEAD,
    Budget,
    Parts,
    dropped,
    least,
    outputs,
    temperature,
    towards_start,
    trained,
    with_dropout,
)


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def data(n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return torch.randn(n, 4, generator=generator) + 2 * F.one_hot(y, 4), y


def test_a_fifth_is_held_out_of_every_class():
    parts = Parts.of(data(), seed=3)
    assert parts.held[1].bincount().tolist() == [4, 4, 4]
    assert parts.kept[1].bincount().tolist() == [16, 16, 16]


@pytest.mark.parametrize("n", [6, 9, 12])
def test_two_examples_a_class_leave_one_to_train_with(n):
    parts = Parts.of(data(n), seed=0)
    assert set(parts.kept[1].tolist()) == {0, 1, 2}
    assert len(parts.held[1]) >= 1


def test_training_leaves_the_network_it_starts_from_and_the_global_randomness_alone():
    start, state = network(), torch.get_rng_state()
    before = [p.clone() for p in start.parameters()]
    made = trained(start, data(), Budget(50, 1e-2), seed=1)
    assert all(torch.equal(a, b) for a, b in zip(before, start.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert F.cross_entropy(made(data()[0]), data()[1]) < F.cross_entropy(start(data()[0]), data()[1])


def test_temperature_scaling_finds_the_temperature_that_labels_were_drawn_with():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(20000, 5, generator=generator)
    y = torch.multinomial((logits / 2.5).softmax(-1), 1, generator=generator)[:, 0]
    assert temperature(logits, y) == pytest.approx(2.5, rel=0.05)


def test_l2sp_pulls_to_the_start_and_a_new_head_to_zero():
    start = network()
    moved = network(1)
    pull = towards_start(start, 0.5, new_head=True)
    by_hand = 0.25 * sum(
        (p - q).square().sum() for p, q in zip(moved[0].parameters(), start[0].parameters(), strict=True)
    )
    by_hand = by_hand + NEW_HEAD / 2 * sum(p.square().sum() for p in moved[2].parameters())
    assert pull(moved).item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert towards_start(start, 0.5, new_head=False)(start).item() == 0


def test_a_strong_pull_keeps_the_network_where_it_was():
    start = network()
    free, held = (
        trained(start, data(), Budget(100, 1e-2), 0, penalty=towards_start(start, pull, new_head=False))
        for pull in (0.0, 100.0)
    )
    moved = [(m[0].weight - start[0].weight).norm().item() for m in (free, held)]
    assert moved[1] < 0.1 * moved[0]


def test_dropout_stands_before_every_linear_layer_and_its_draws_are_repeated():
    model = with_dropout(network(), 0.5)
    assert [type(layer).__name__ for layer in model] == ["Dropout", "Linear", "ReLU", "Dropout", "Linear"]
    x = data()[0]
    draws = dropped(model, x, 5)
    assert torch.equal(draws, dropped(model, x, 5))
    assert draws.std(0).min() > 0
    assert torch.equal(outputs(model.eval(), x), outputs(network(), x))


def test_an_option_that_is_not_a_number_is_never_chosen():
    assert least((1.0, 2.0, 3.0), lambda option: math.nan if option == 1.0 else option) == 2.0


def test_a_library_that_is_missing_is_named():
    with pytest.raises(RivalMissing, match="no-such-rival is not installed"):
        library("no_such_rival", "no-such-rival")
