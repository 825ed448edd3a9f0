"""What earlier columns hand on is kept while a column trains, and changes nothing but the time that takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from made import HEAD, LATERALS, QUICK, bpnn, dice, network, pnn, task
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from posterity import BPNN, PNN, Task
from posterity.laplace import train
from posterity.progressive.memory import POOL
from posterity.progressive.network import Network

DOUBLE = torch.float64


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
    for room in (0, 1 << 20):
        learner = PNN(network(dtype=DOUBLE), LATERALS, HEAD, training=QUICK, room=room)
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
    assert kept.remember(x, 1 << 20)
    for step in range(2 * POOL + 3):
        if step % POOL == 0:
            fresh.step.zero_()  # the first draw comes again
        torch.testing.assert_close(kept(which), fresh(x[which]), rtol=1e-5, atol=1e-6)
    fresh.eval(), kept.eval()
    torch.testing.assert_close(kept(which), fresh(x[which]), rtol=1e-5, atol=1e-6)
    kept.forget()
    assert torch.equal(kept(x), fresh(x))


def test_a_short_training_is_the_same_with_and_without_a_memory() -> None:
    """As long as no draw has come twice: of 64 examples in batches of 32, for three epochs."""
    ends = []
    for room in (0, 1 << 20):
        learner = bpnn(room=room)
        for number in range(2):
            learner.learn(task(number), progress=False)
        ends.append(weights(learner))
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-4, atol=1e-5)


def test_earlier_columns_run_a_few_times_for_each_example_and_no_further_than_the_last_lateral() -> None:
    learner = bpnn(training=QUICK | {"epochs": 40, "stop_after": 40})
    learner.learn(task(0), progress=False)
    first, before_last, last, head = ([] for _ in range(4))  # type: ignore[var-annotated]
    column = learner.learned[0].column.module
    network = in_training(learner)  # first: laterals are copies of these layers, hooks included
    for name, calls in (("0", first), ("2", before_last), ("4", last), ("6", head)):
        counted(column.get_submodule(name), calls)
    x, y = task(1).train
    assert network.remember(x, 1 << 20)
    # To see how large a bank will be, and which parameters have any influence, columns run on one or two examples.
    options = {"validation": None, "progress": False, "epochs": 40, "stop_after": 40, "batch_size": 32}
    train(network, (torch.arange(64), y), generator=dice(), **options)  # type: ignore[arg-type]
    assert sum(n for n in first if n > 2) == POOL * 64  # not 40 · 64
    assert first == before_last
    assert max(last) <= 2
    assert max(head) <= 2


def test_a_backbone_runs_once_for_each_example() -> None:
    backbone = nn.Linear(4, 4)
    learner = pnn(backbone=backbone)
    calls: list[int] = []
    counted(backbone, calls)
    learner.learn(task(0), progress=False)
    assert sum(calls) == 64 + 32 + 1 + 2  # training and validation, and the two looks at their shapes


@pytest.mark.parametrize("why", ["no room", "a loader", "augmented"])
def test_where_nothing_can_be_kept_columns_learn_as_ever(why: str) -> None:
    plain, other = bpnn(room=0), bpnn(room=100 if why == "no room" else 1 << 20)
    coming = task(1)
    if why == "augmented":
        plain, other = (bpnn(room=room, training=QUICK | {"augment": lambda x: x + 0.01}) for room in (0, 1 << 20))
    if why == "a loader":
        data = TensorDataset(*coming.train)  # type: ignore[misc]
        loader = DataLoader(data, batch_size=32)
        coming = Task("task 1", loader, coming.validation, coming.test, 3)
    for learner in (plain, other):
        learner.learn(task(0), progress=False)
        learner.learn(coming, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(weights(plain).values(), weights(other).values(), strict=True))


class TimeFirst(nn.Module):
    """Examples along the second axis inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(1, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.inner(x.T[:, :, None]).tanh().mean(0))


def test_what_does_not_lie_along_the_first_axis_is_not_kept() -> None:
    model = TimeFirst()
    learner = PNN(model, ["inner"], "out", training=QUICK)
    learner.learn(task(0), progress=False)
    earlier = [learner.learned[0].column]
    network = Network([*earlier, learner.architecture.grow(earlier, 3, 0)], ("inner",), past=1)
    assert not network.remember(torch.randn(9, 4), 1 << 20)
    learner.learn(task(1), progress=False)


def test_constants_move_with_the_network() -> None:
    learner = bpnn(backbone=nn.Linear(4, 4))
    learner.learn(task(0), progress=False)
    network = in_training(learner).double()
    assert network(torch.randn(5, 4, dtype=DOUBLE)).dtype == DOUBLE


def test_the_room_is_saved(tmp_path: Path) -> None:
    learner = bpnn(room=12345)
    learner.learn(task(0), progress=False)
    learner.save(tmp_path)
    assert BPNN.load(tmp_path, network()).room == 12345
