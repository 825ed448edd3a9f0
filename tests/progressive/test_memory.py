"""What earlier columns hand on is kept while a column trains, and changes nothing but the time that takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from made import HEAD, LATERALS, bpnn, dice, learned_prior, network, pnn, task
from made import QUICK as FEW
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from posterity import BPNN, Scales, Task
from posterity.errors import ChangedInput
from posterity.laplace import train
from posterity.progressive.memory import POOL
from posterity.progressive.network import Draws, Network
from posterity_studies.shared.continual import PNN

DOUBLE = torch.float64
LONG = {"epochs": POOL + 4, "stop_after": 99, "lr": 1e-2, "batch_size": 32}
"""Epochs enough that a memory is worth while."""


def weights(learner: BPNN | PNN) -> dict[str, Tensor]:
    column = learner.learned[-1].column
    return {**column.module.state_dict(), **{f"laterals {k}": v for k, v in column.laterals.state_dict().items()}}


def in_double(coming: Task) -> Task:
    train, held, test = ((x.double(), y) for x, y in (coming.train, coming.validation, coming.test))  # type: ignore[misc]
    return Task(coming.name, train, held, test, coming.classes)


def counted(module: nn.Module, calls: list[int]) -> None:
    module.register_forward_hook(lambda m, args, out: calls.append(len(out)))


def in_training(learner: BPNN, seed: int = 1) -> Network:
    return learner._in_training(learner.architecture.grow([one.column for one in learner.learned], 3, 0), seed).train()


def test_plain_columns_end_at_the_same_weights() -> None:
    ends = []
    for memory_limit in (0, 1 << 20):
        learner = PNN(network(dtype=DOUBLE), LATERALS, HEAD, training=LONG, memory_limit=memory_limit)
        for number in range(3):
            learner.learn(in_double(task(number)), progress=False)
        ends.append(weights(learner))
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-9, atol=1e-12)


def test_bayesian_columns_take_the_draws_of_the_pool_in_turn() -> None:
    learner = bpnn()
    for number in range(2):
        learner.learn(task(number), progress=False)
    x, which = torch.randn(12, 4), torch.tensor([3, 0, 11, 3])
    fresh, kept = in_training(learner), in_training(learner)
    assert kept.remember([x], 1 << 20)
    for step in range(2 * POOL + 3):
        if step % POOL == 0:
            fresh.step.zero_()  # the first draw comes again
        torch.testing.assert_close(kept(which), fresh(x[which]), rtol=1e-5, atol=1e-6)
    fresh.eval(), kept.eval()
    torch.testing.assert_close(kept(which), fresh(x[which]), rtol=1e-5, atol=1e-6)
    kept.forget()
    assert torch.equal(kept(x), fresh(x))


@pytest.mark.parametrize("validation", ["given", 0.25, None])
def test_training_is_the_same_as_with_the_draws_of_the_pool_made_anew(
    monkeypatch: pytest.MonkeyPatch, validation: object
) -> None:
    once, ends = Draws.at, []
    options = LONG if validation == "given" else LONG | {"validation": validation}
    for memory_limit in (1 << 20, 0):
        if not memory_limit:
            monkeypatch.setattr(Draws, "at", lambda self, step: once(self, step % POOL))
        learner = bpnn(memory_limit=memory_limit, training=options)
        for number in range(2):
            learner.learn(task(number), progress=False)
        ends.append(weights(learner))
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-3, atol=1e-4)


def test_training_stopped_and_taken_up_again_takes_the_same_draws(tmp_path: Path) -> None:
    learner = bpnn()
    learner.learn(task(0), progress=False)
    x, y = task(1).train
    ends = []
    for interrupted in (False, True):
        options = {"validation": None, "progress": False, "stop_after": 99, "lr": 1e-2, "batch_size": 16}
        for epochs in (3, 9) if interrupted else (9,):
            options |= {"checkpoint": tmp_path / "state.pt"} if interrupted else {}
            network = in_training(learner, 7)
            assert network.remember([x], 1 << 20)
            train(network, (torch.arange(64), y), epochs=epochs, generator=dice(), **options)  # type: ignore[arg-type]
        ends.append(network.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*(end.values() for end in ends), strict=True))


def test_earlier_columns_run_a_few_times_for_each_example_and_no_further_than_the_last_lateral() -> None:
    learner = bpnn(training=LONG)
    learner.learn(task(0), progress=False)
    first, before_last, last, head = ([] for _ in range(4))  # type: ignore[var-annotated]
    column = learner.learned[0].column.module
    network = in_training(learner)  # first: laterals are copies of these layers, hooks included
    for name, calls in (("0", first), ("2", before_last), ("4", last), ("6", head)):
        counted(column.get_submodule(name), calls)
    x, y = task(1).train
    assert network.remember([x], 1 << 20)
    # To see how large a bank will be, and which parameters have any influence, columns run on two or three examples.
    options = {"validation": None, "progress": False, "epochs": 40, "stop_after": 40, "batch_size": 32}
    train(network, (torch.arange(64), y), generator=dice(), **options)  # type: ignore[arg-type]
    # Once more for the look that training takes at a network before it starts; not 40 · 64.
    assert sum(n for n in first if n > 3) == (POOL + 1) * 64
    assert first == before_last
    assert max(last) <= 3
    assert max(head) <= 3


def test_without_laterals_earlier_columns_do_not_run() -> None:
    learner = BPNN(network(), learned_prior(network()), [], HEAD, training=LONG, scales=Scales())
    learner.learn(task(0), progress=False)
    calls: list[int] = []
    counted(learner.learned[0].column.module, calls)
    learner.learn(task(1), progress=False)
    assert calls == []


def test_a_backbone_runs_once_for_each_example() -> None:
    backbone = nn.Linear(4, 4)
    learner = pnn(backbone=backbone, training=LONG)
    calls: list[int] = []
    counted(backbone, calls)
    learner.learn(task(0), progress=False)
    assert sum(calls) == 64 + 32 + 2 + 3  # training and validation, and the two looks at their shapes


@pytest.mark.parametrize("why", ["no room", "a loader", "augmented", "few epochs", "another shape held out"])
def test_where_nothing_can_be_kept_columns_learn_as_ever(why: str) -> None:
    training = FEW if why == "few epochs" else LONG
    training = training | ({"augment": lambda x: x + 0.01} if why == "augmented" else {})
    plain, other = (
        bpnn(memory_limit=memory_limit, training=training) for memory_limit in (0, 100 if why == "no room" else 1 << 20)
    )
    coming = task(1)
    if why == "a loader":
        loader = DataLoader(TensorDataset(*coming.train), batch_size=32)  # type: ignore[misc]
        coming = Task("task 1", loader, coming.validation, coming.test, 3)
    if why == "another shape held out":
        x, y = coming.validation  # type: ignore[misc]
        coming = Task("task 1", coming.train, (x[:, None], y[:, None]), None, 3)
        plain, other = (bpnn(memory_limit=memory_limit, training=training) for memory_limit in (0, 1 << 20))
    for learner in (plain, other):
        learner.learn(task(0), progress=False)
        learner.learn(coming, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(weights(plain).values(), weights(other).values(), strict=True))


def the_same_with_and_without_a_memory(make: Callable[[int], BPNN | PNN], tasks: Sequence[Task]) -> bool:
    ends = []
    for memory_limit in (0, 1 << 20):
        torch.manual_seed(0)
        learner = make(memory_limit)
        for each in tasks:
            learner.learn(each, progress=False)
        ends.append(weights(learner))
    return all(torch.equal(a, b) for a, b in zip(*(end.values() for end in ends), strict=True))


def test_a_backbone_and_several_temperatures() -> None:
    learner = bpnn(backbone=nn.Linear(4, 4), temperatures=(1.0, 0.1), training=LONG)
    for number in range(2):
        learner.learn(task(number), progress=False)
        probs = learner.predict(task(number).test[0], task=f"task {number}").probs  # type: ignore[index]
        torch.testing.assert_close(probs.sum(1), torch.ones(len(probs)))


class Pairs(nn.Module):
    """A backbone whose outputs are a record."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"x": x}


class OfPairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, record: dict[str, Tensor]) -> Tensor:
        return self.out(self.inner(record["x"]).tanh())


def test_a_backbone_that_gives_a_record_is_not_kept() -> None:
    def make(memory_limit: int) -> PNN:
        return PNN(OfPairs(), ["inner"], "out", backbone=Pairs(), training=LONG, memory_limit=memory_limit)

    assert the_same_with_and_without_a_memory(make, [task(0), task(1)])


class Steps(nn.Module):
    """One layer, called for each step of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 4)
        for step in range(x.shape[1]):
            h = torch.tanh(self.inner(h + x[:, step]))
        return self.out(h)


def test_a_layer_that_is_called_more_often_for_longer_sequences() -> None:
    def make(memory_limit: int) -> PNN:
        return PNN(Steps(), ["inner"], "out", training=LONG | {"validation": None}, memory_limit=memory_limit)

    batches = [(torch.randn(8, steps, 4), torch.randint(3, (8,))) for steps in (3, 5, 2)]
    assert the_same_with_and_without_a_memory(make, [Task(f"{number}", batches, None, None, 3) for number in range(2)])


class Overwriting(nn.Module):
    """What its lateral layer has read is changed in place, where autograd does not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if torch.is_grad_enabled():
            return self.out(h + self.inner(h))
        h += self.inner(h)
        return self.out(h)


@pytest.mark.parametrize("memory_limit", [0, 1 << 20])
def test_inputs_that_are_changed_in_place_are_refused_with_and_without_a_memory(memory_limit: int) -> None:
    learner = PNN(
        Overwriting(), ["inner", "first"], "out", training=LONG | {"validation": None}, memory_limit=memory_limit
    )
    learner.learn(task(0), progress=False)
    with pytest.raises(ChangedInput, match='the input of "inner" in column 0'):
        learner.learn(task(1), progress=False)


class TimeFirst(nn.Module):
    """Examples along the second axis inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(1, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.inner(x.T[:, :, None]).tanh().mean(0))


def test_what_does_not_lie_along_the_first_axis_is_not_kept() -> None:
    model = TimeFirst()
    learner = PNN(model, ["inner"], "out", training=LONG)
    learner.learn(task(0), progress=False)
    earlier = [learner.learned[0].column]
    network = Network([*earlier, learner.architecture.grow(earlier, 3, 0)], ("inner",), past=1)
    assert not network.remember([torch.randn(9, 4)], 1 << 20)
    learner.learn(task(1), progress=False)


def test_temperatures_are_compared_on_draws_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of earlier columns and of the new one, from seeds that differ among themselves and from those of training."""
    seeds, made = [], Draws.__init__

    def noted(self: Draws, gaussian: object, network: nn.Module, seed: int) -> None:
        seeds.append(seed)
        made(self, gaussian, network, seed)  # type: ignore[arg-type]

    learner = bpnn(temperatures=(1.0, 0.1))
    learner.learn(task(0), progress=False)
    monkeypatch.setattr(Draws, "__init__", noted)
    learner.learn(task(1), progress=False)
    assert len(set(seeds)) == len(seeds) == 3


def test_constants_move_with_the_network() -> None:
    learner = bpnn(backbone=nn.Linear(4, 4))
    learner.learn(task(0), progress=False)
    network = in_training(learner).double()
    assert network(torch.randn(5, 4, dtype=DOUBLE)).dtype == DOUBLE


def test_the_room_is_saved(tmp_path: Path) -> None:
    learner = bpnn(memory_limit=12345)
    learner.learn(task(0), progress=False)
    learner.save(tmp_path)
    assert BPNN.load(tmp_path, network()).memory_limit == 12345
