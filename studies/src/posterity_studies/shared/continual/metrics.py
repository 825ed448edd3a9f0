"""Continual learning judged: the matrix R[i][j] of task j after task i, and what is read off it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from posterity.curvature import Categorical
from posterity.data import Data
from posterity.data.batches import batches, is_pair
from posterity.errors import BadData, NoData
from posterity.predictive import Prediction, score
from posterity.progressive import Stream, Task
from posterity_studies.shared.continual.learner import Learner


@dataclass(frozen=True)
class Judgement:
    """One task at one time. For regression, accuracy and ECE are NaN."""

    accuracy: float
    nll: float
    ece: float


@dataclass(frozen=True)
class Continual:
    """How a learner did on a stream: `matrix[i][j]` is task j after task i was learned, None where it had not come yet."""

    tasks: tuple[str, ...]
    matrix: tuple[tuple[Judgement | None, ...], ...]
    parameters: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)

    def accuracies(self) -> list[list[float]]:
        """R[i][j], NaN above the diagonal."""
        return [[math.nan if j is None else j.accuracy for j in row] for row in self.matrix]

    @property
    def acc(self) -> float:
        """Mean accuracy over all tasks at the end."""
        return average_accuracy(self.accuracies())

    @property
    def bwt(self) -> float:
        """Backward transfer: below zero where later tasks spoilt earlier ones."""
        return backward_transfer(self.accuracies())

    @property
    def forgetting(self) -> float:
        """What was lost since the best time of each task, on average."""
        return forgetting(self.accuracies())

    def fwt(self, alone: Sequence[float]) -> float:
        """Forward transfer, with the accuracies of networks that learn each task alone."""
        return forward_transfer(self.accuracies(), alone)

    @property
    def nll(self) -> float:
        """Mean over tasks at the end."""
        return _mean(j.nll for j in self.matrix[-1] if j is not None)

    @property
    def ece(self) -> float:
        """Mean over tasks at the end."""
        return _mean(j.ece for j in self.matrix[-1] if j is not None)


def follow(learner: Learner, stream: Stream | Iterable[Task], *, seed: int = 0, progress: bool = True) -> Continual:
    """Let a learner learn a stream, and judge it on the test data of every task so far after each."""
    done: list[Task] = []
    rows: list[list[Judgement]] = []
    for task in stream:
        learner.learn(task, progress=progress)
        done.append(task)
        rows.append([judge(learner, old, seed=seed) for old in done])
    if not done:
        raise NoData("the stream has no task.")
    full = tuple((*row, *[None] * (len(done) - len(row))) for row in rows)
    return Continual(tuple(t.name for t in done), full, dict(learner.parameters), dict(learner.bytes))


def judge(learner: Learner, task: Task, *, seed: int = 0) -> Judgement:
    """A learner on the test data of a task."""
    if task.test is None:
        raise NoData(f'task "{task.name}" has no test data to be judged by.')
    x, y = gathered(task.test)
    return judged(learner.predict(x, task.name, generator=torch.Generator().manual_seed(seed)), y)


def judged(prediction: Prediction, targets: Tensor) -> Judgement:
    if isinstance(prediction.likelihood, Categorical):
        scores = score(prediction.probs, targets)
        return Judgement(scores.accuracy, scores.nll, scores.ece)
    # Regression, and independent yes-or-no targets: the NLL of the mean prediction.
    count = len(targets)
    outputs, targets = prediction.likelihood.check(prediction.logits, targets)
    return Judgement(math.nan, float(prediction.likelihood.nll(outputs, targets)) / count, math.nan)


def gathered(data: Data) -> tuple[Tensor, Tensor]:
    """All inputs and targets of some data as two tensors."""
    if is_pair(data):
        return data[0], data[1]
    parts = [(batch.positional[0], batch.targets) for batch in batches(data, 1024) if len(batch.positional) == 1]
    if not parts:
        raise BadData("the data has no batches of (inputs, targets): give inputs as one tensor.")
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def average_accuracy(r: Sequence[Sequence[float]]) -> float:
    """ACC = mean over j of R[T][j] (Lopez-Paz & Ranzato 2017)."""
    return _mean(r[-1])


def backward_transfer(r: Sequence[Sequence[float]]) -> float:
    """BWT = mean over j < T of R[T][j] − R[j][j]: negative where later tasks spoilt earlier ones."""
    return _mean(r[-1][j] - r[j][j] for j in range(len(r) - 1))


def forgetting(r: Sequence[Sequence[float]]) -> float:
    """Mean over j < T of the best R[i][j] before the end, minus R[T][j] (Chaudhry et al. 2018)."""
    t = len(r) - 1
    return _mean(max(r[i][j] for i in range(j, t)) - r[t][j] for j in range(t))


def forward_transfer(r: Sequence[Sequence[float]], alone: Sequence[float]) -> float:
    """FWT = mean over j > 1 of what tasks before j were worth to it.

    Where task j can be tried before it is learned (one head for all), that is R[j−1][j] − alone[j], `alone` being the accuracy
    of an untrained network. Where each task has its own head it is R[j][j] − alone[j], with a network that learns task j alone.
    """
    zero_shot = not any(math.isnan(r[j - 1][j]) for j in range(1, len(r)))
    return _mean((r[j - 1][j] if zero_shot else r[j][j]) - alone[j] for j in range(1, len(r)))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else math.nan
