"""What every continual learner is: tasks come one by one, and any of them can be asked for at any time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from posterity.blocks import evaluating
from posterity.curvature import Likelihood
from posterity.data.batches import input_batches
from posterity.errors import RepeatedTask, UnknownTask
from posterity.predictive import Prediction
from posterity.predictive.prediction import from_outputs
from posterity.progressive import Architecture, Task
from posterity.progressive.bpnn import seed_of


class Learner(Protocol):
    """Learns a stream of tasks, as `pt.BPNN` does. An error while learning leaves it as it was."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks learned, in their order."""

    @property
    def parameters(self) -> dict[str, int]:
        """How many numbers each task added."""

    @property
    def bytes(self) -> dict[str, int]:
        """What each task added in memory: weights, and what is kept of how sure they are."""

    def learn(self, task: Task, *, generator: torch.Generator | None = None, progress: bool = True) -> Any:
        """Learn one more task. Without a generator, randomness follows from the learner's seed and the task's number."""

    def predict(
        self, x: Tensor | Mapping[str, Any], task: str, *, generator: torch.Generator | None = None
    ) -> Prediction:
        """The predictive distribution of a task that was learned, for inputs x."""


class Rival(ABC):
    """What the learners here share."""

    @property
    @abstractmethod
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks learned, in their order."""

    def _number(self, task: str) -> int:
        if task not in self.tasks:
            raise UnknownTask(f'no task "{task}" has been learned: there are {list(self.tasks)}.')
        return self.tasks.index(task)

    def _accept(self, task: Task) -> None:
        """Refuse a task that cannot be learned, before anything changes."""
        task.check()
        if task.name in self.tasks:
            raise RepeatedTask(f'task "{task.name}" has been learned already: give the new one another name.')


class HeadLearner(Rival):
    """A learner with one network for all tasks, and a head for each.

    `precision` is that of an isotropic prior around zero, next to the summed NLL.
    """

    def __init__(
        self,
        model: nn.Module,
        head: str | None = None,
        *,
        precision: float = 1.0,
        training: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.architecture = Architecture.of(model, [], head)
        self.precision, self.training, self.seed = precision, dict(training or {}), seed


@torch.no_grad()
def plain_prediction(
    network: nn.Module,
    x: Tensor | Mapping[str, Any],
    likelihood: Likelihood,
    *,
    dropout_draws: int = 0,
    generator: torch.Generator | None = None,
    batch_size: int = 250,
) -> Prediction:
    """One network's answer, or the mean over `dropout_draws` of them with dropout left on."""
    like = next(network.parameters())
    batches = input_batches(x, batch_size, like.device, like.dtype)
    with evaluating(network):
        if not dropout_draws:
            outputs = torch.cat([batch.outputs(network) for batch in batches])[None]
        else:
            for module in network.modules():
                if isinstance(module, nn.modules.dropout._DropoutNd):
                    module.train()
            # Dropout takes no generator: torch's own is set for a while, and put back.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed_of(0, 0, generator))
                draws = [torch.cat([b.outputs(network) for b in batches]) for _ in range(dropout_draws)]
            outputs = torch.stack(draws)
    return from_outputs(outputs, likelihood, outputs.mean(0), False)
