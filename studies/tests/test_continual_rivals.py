"""The learners that BPNN is compared with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from made import HEAD, LATERALS, dice, network, task
from torch import nn

from posterity import GaussianNoise, Task, estimate
from posterity.algebra import DiagonalMatrix
from posterity.curvature import Dense, ExactLabels
from posterity.errors import BadTargets, PosterityError, UnknownTask
from posterity.laplace import train
from posterity_studies.shared.continual import (
    EWC,
    PNN,
    Continual,
    FineTuning,
    JointNetwork,
    Learner,
    OnlineLaplace,
    follow,
)

TRAINING = {"epochs": 30, "lr": 2e-2, "batch_size": 64}
RIVALS: dict[str, Callable[[], Learner]] = {
    "fine-tuning": lambda: FineTuning(network(), HEAD, precision=0.1, training=TRAINING),
    "ewc": lambda: EWC(network(), HEAD, precision=0.1, strength=30.0, training=TRAINING),
    "online laplace": lambda: OnlineLaplace(network(), HEAD, precision=0.1, strength=3.0, training=TRAINING),
    "joint": lambda: JointNetwork(network(), HEAD, precision=0.1, training=TRAINING),
    "pnn": lambda: PNN(network(), LATERALS, HEAD, weight_decay=1e-3, training=TRAINING),
    "mc dropout": lambda: PNN(with_dropout(), LATERALS, HEAD, dropout_draws=20, training=TRAINING),
}


def with_dropout() -> nn.Sequential:
    model = network()
    model[3] = nn.Sequential(nn.Tanh(), nn.Dropout(0.2))
    return model


@cache
def course(name: str) -> tuple[Learner, Continual]:
    learner = RIVALS[name]()
    return learner, follow(learner, [task(k, classes=2 + k % 2, n=128) for k in range(3)], progress=False)


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_learns_a_stream_on_the_same_interface(name: str) -> None:
    learner, found = course(name)
    assert learner.tasks == ("task 0", "task 1", "task 2")
    assert 0.6 < found.acc <= 1
    assert 0.7 < found.accuracies()[0][0] <= 1
    assert learner.predict(torch.randn(2, 4), "task 1").probs.shape == (2, 3)
    assert list(found.parameters) == list(found.bytes) == list(learner.tasks)
    with pytest.raises(UnknownTask):
        learner.predict(torch.randn(2, 4), "task 9")


def test_fine_tuning_forgets_and_what_holds_weights_forgets_less() -> None:
    found = {name: course(name)[1].forgetting for name in ("fine-tuning", "ewc", "pnn")}
    print(found)
    assert found["fine-tuning"] > 0.05
    assert found["ewc"] < found["fine-tuning"] - 0.03
    assert found["pnn"] == 0


def test_the_quadratics_of_ewc_are_one_for_each_task() -> None:
    """Its one Gaussian is the sum of the published penalties, up to a constant."""
    learner = EWC(network(dtype=torch.float64), HEAD, precision=0.5, strength=2.0, training={"epochs": 3, "lr": 1e-2})
    modes, fishers = [], []
    tasks = [_doubled(task(k)) for k in range(2)]
    for coming in tasks:
        state = learner.learn(coming, progress=False)
        modes.append({n: p.detach().clone() for n, p in state.network.named_parameters()})
        fishers.append(state.belief)
    assert learner.state is not None
    belief = learner.state.belief
    assert belief is not None
    first = fishers[0]
    assert first is not None
    at = {n: torch.cat((modes[1][f"{n}.weight"], modes[1][f"{n}.bias"][:, None]), 1) for n in belief.blocks}
    for name in belief.blocks:
        old, new = (g.precision[name] for g in (first, belief))
        assert isinstance(old, DiagonalMatrix)
        assert isinstance(new, DiagonalMatrix)
        fisher = new.values - old.values
        assert float(fisher.min()) >= 0
        # The gradient of the sum of both penalties vanishes at the mean of the one.
        pull = old.values * (belief.mean[name] - first.mean[name]) + fisher * (belief.mean[name] - at[name])
        torch.testing.assert_close(pull, torch.zeros_like(pull), rtol=0, atol=1e-9)


def _doubled(one: Task) -> Task:
    x, y = one.train  # type: ignore[misc]
    return Task(one.name, (x.double(), y), None, None, one.classes)


def test_online_laplace_adds_the_curvature_of_each_task() -> None:
    learner = OnlineLaplace(
        network(dtype=torch.float64),
        HEAD,
        precision=0.5,
        estimator=Dense(ExactLabels()),
        training={"epochs": 2, "lr": 1e-2},
    )
    tasks = [_doubled(task(k)) for k in range(2)]
    first = learner.learn(tasks[0], progress=False)
    second = learner.learn(tasks[1], progress=False)
    assert first.belief is not None
    assert second.belief is not None
    assert HEAD not in second.belief.blocks
    added = second.belief.precision["2"].dense() - first.belief.precision["2"].dense()
    values = torch.linalg.eigvalsh(added)
    assert float(values.min()) > -1e-9
    again = estimate(second.network, tasks[1].train, Dense(ExactLabels()), blocks="2", progress=False)
    assert float(values.sum()) == pytest.approx(float(again["2"].trace()), rel=1e-9)


def test_a_failed_task_leaves_one_network_as_it_was() -> None:
    learner = RIVALS["ewc"]()
    learner.learn(task(0), progress=False)
    x = torch.randn(3, 4)
    before = learner.predict(x, "task 0").probs
    bad = torch.full((8, 4), float("nan"))
    with pytest.raises(PosterityError, match="NaN"):
        learner.learn(Task("bad", (bad, torch.zeros(8, dtype=torch.int64)), None, None, 2), progress=False)
    assert learner.tasks == ("task 0",)
    assert torch.equal(learner.predict(x, "task 0").probs, before)


def test_joint_training_never_gives_a_class_of_another_task() -> None:
    learner = JointNetwork(network(), HEAD, training={"epochs": 1})
    learner.learn(task(0, classes=2), progress=False)
    learner.learn(task(1, classes=5), progress=False)
    probs = learner.predict(torch.randn(7, 4), "task 0").probs
    assert probs.shape == (7, 2)
    torch.testing.assert_close(probs.sum(1), torch.ones(7), rtol=0, atol=1e-6)
    with pytest.raises(BadTargets, match="classes only"):
        learner.learn(Task("numbers", task(0).train, None, None, 2, GaussianNoise()), progress=False)


def test_dropout_is_on_only_where_it_is_asked_for() -> None:
    plain = PNN(with_dropout(), LATERALS, HEAD, training={"epochs": 1})
    dropping = PNN(with_dropout(), LATERALS, HEAD, dropout_draws=3, training={"epochs": 1})
    x = torch.randn(4, 4)
    for learner in (plain, dropping):
        learner.learn(task(0), progress=False)
    assert torch.equal(
        plain.predict(x, "task 0", generator=dice(1)).probs, plain.predict(x, "task 0", generator=dice(2)).probs
    )
    one, two, again = (dropping.predict(x, "task 0", generator=dice(k)).probs for k in (1, 2, 1))
    assert not torch.equal(one, two)
    assert torch.equal(one, again)


def test_weight_decay_is_a_prior_in_pytorchs_units() -> None:
    """λ on the mean loss, as torch's SGD has it: the same step from the same weights."""
    decayed = PNN(network(dtype=torch.float64), LATERALS, HEAD, weight_decay=0.1)
    x, y = _doubled(task(0)).train  # type: ignore[misc]
    options = {"epochs": 1, "batch_size": 64, "validation": None, "progress": False}

    def sgd(decay: float) -> Callable[[object], torch.optim.Optimizer]:
        return lambda p: torch.optim.SGD(p, 0.1, weight_decay=decay)  # type: ignore[arg-type]

    decayed.training = options | {"optimiser": sgd(0.0)}
    found = decayed.learn(Task("a", (x, y), None, None, 3)).column.module
    reference = decayed.architecture.grow([], 3, _seed(decayed)).module
    train(reference, (x, y), generator=dice(), optimiser=sgd(0.1), **options)
    for p, q in zip(found.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def _seed(learner: PNN) -> int:
    from posterity.progressive.bpnn import seed_of

    return seed_of(learner.seed, 0, None)
