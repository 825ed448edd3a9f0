"""Progressive neural networks: a column for each task, no uncertainty of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posterity.curvature import Likelihood
from posterity.laplace import History, isotropic
from posterity.laplace.run import BatchSource
from posterity.predictive import Prediction
from posterity.progressive import Architecture, Column, Network, Task
from posterity.progressive.bpnn import seed_of
from posterity.progressive.prior import own_block
from posterity.progressive.training import MEMORY_LIMIT, train_column
from posterity_studies.shared.continual.learner import Rival, plain_prediction


@dataclass(frozen=True, eq=False)
class TrainedTask:
    """A task that was learned: its column, and how training went."""

    task: str
    likelihood: Likelihood
    column: Column
    history: History


class PNN(Rival):
    """A new column for each task, with lateral connections from all earlier ones, which stay as they are.

    Args:
        model: the architecture of a column and its initial weights. Parameters with requires_grad False are shared by all
            columns and never trained.
        laterals: the layers where earlier columns lead in, as paths or patterns.
        head: the layer that each task has in its own size; the last linear one by default.
        weight_decay: PyTorch's λ on the mean loss, a Gaussian prior of precision λ·N around zero.
        dropout_draws: if not zero, dropout stays on when predicting and as many outputs are averaged (MC dropout).
        backbone: a frozen module that runs once before all columns.
        training: options of `train` (lr, epochs, …), and `head_first=True` to fit each new head before its column moves.
        memory_limit: bytes for keeping what earlier columns hand on while a column trains, where the data is a pair of tensors.
        seed: all randomness follows from it, unless a generator is given.

    Example:
        >>> pnn = PNN(model, laterals=["3", "7", "9"], head="11")
        >>> for task in stream: pnn.learn(task)
        >>> pnn.predict(x, task="apple").labels
    """

    learned: tuple[TrainedTask, ...] = ()

    def __init__(
        self,
        model: nn.Module,
        laterals: Sequence[str] | str,
        head: str | None = None,
        *,
        weight_decay: float = 0.0,
        dropout_draws: int = 0,
        backbone: nn.Module | None = None,
        training: Mapping[str, Any] | None = None,
        memory_limit: int = MEMORY_LIMIT,
        seed: int = 0,
    ) -> None:
        self.architecture = Architecture.of(model, laterals, head)
        self.weight_decay, self.dropout_draws, self.backbone = weight_decay, dropout_draws, backbone
        self.training, self.memory_limit, self.seed = dict(training or {}), memory_limit, seed

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(entry.task for entry in self.learned)

    @property
    def parameters(self) -> dict[str, int]:
        return {entry.task: entry.column.parameters for entry in self.learned}

    @property
    def bytes(self) -> dict[str, int]:
        return {entry.task: entry.column.bytes for entry in self.learned}

    def network(self, task: str) -> Network:
        """The columns that feed a task, as one module in evaluation mode. It shares the learner's own weights."""
        columns = [entry.column for entry in self.learned[: self._number(task) + 1]]
        return Network(columns, self.architecture.laterals, backbone=self.backbone).eval()

    def learn(self, task: Task, *, generator: torch.Generator | None = None, progress: bool = True) -> TrainedTask:
        entry = self.draft(task, generator=generator, progress=progress)
        self.adopt(entry)
        return entry

    def adopt(self, entry: TrainedTask) -> None:
        """Add a column that `draft` made."""
        self.learned = (*self.learned, entry)

    def draft(self, task: Task, *, generator: torch.Generator | None = None, progress: bool = True) -> TrainedTask:
        self._accept(task)
        earlier = [entry.column for entry in self.learned]
        seed = seed_of(self.seed, len(earlier), generator)
        column = self.architecture.grow(earlier, task.classes, seed)
        network = Network([*earlier, column], self.architecture.laterals, past=len(earlier), backbone=self.backbone)
        prior = None
        if self.weight_decay:
            # λ on a mean loss is a precision of λ·N beside the summed one.
            prior = isotropic(network, self.weight_decay * BatchSource(task.train, 1024, None).count)
        options = {"validation": task.validation, "progress": progress} | self.training
        head = own_block(len(earlier), self.architecture.head)
        history = train_column(network, task, prior, self.memory_limit, seed, options, head)
        network.eval()
        return TrainedTask(task.name, task.likelihood, column, history)

    def predict(
        self, x: Tensor | Mapping[str, Any], task: str, *, generator: torch.Generator | None = None
    ) -> Prediction:
        likelihood = self.learned[self._number(task)].likelihood
        return plain_prediction(
            self.network(task), x, likelihood, dropout_draws=self.dropout_draws, generator=generator
        )
