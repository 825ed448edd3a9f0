"""The ceiling: all tasks at once, as if nothing had to be remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from posterity.curvature import Categorical
from posterity.errors import BadTargets
from posterity.laplace import isotropic, train
from posterity.predictive import Prediction
from posterity.progressive import Architecture, Task
from posterity.progressive.bpnn import seed_of
from posterity.progressive.training import EPOCHS
from posterity_studies.shared.continual.learner import HeadLearner, plain_prediction
from posterity_studies.shared.continual.metrics import gathered

NEVER = -1e9
"""The logit of a class that another task's head has."""


class JointNetwork(HeadLearner):
    """One network with a head for each task, trained from scratch on the data of all tasks so far whenever one comes.

    No continual learner: it keeps all data. `precision` is that of an isotropic prior around zero, next to the summed NLL.
    """

    seen: tuple[Task, ...] = ()
    network: MultiHeadNetwork | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.seen)

    @property
    def parameters(self) -> dict[str, int]:
        if self.network is None:
            return {}
        found = {n: sum(p.numel() for p in h.parameters()) for n, h in zip(self.tasks, self.network.heads, strict=True)}
        found[self.tasks[0]] += sum(p.numel() for p in self.network.body.parameters())
        return found

    @property
    def bytes(self) -> dict[str, int]:
        """Weights alone; the data that it keeps comes on top."""
        size = 0 if self.network is None else next(self.network.parameters()).element_size()
        return {task: size * n for task, n in self.parameters.items()}

    def learn(self, task: Task, *, generator: torch.Generator | None = None, progress: bool = True) -> MultiHeadNetwork:
        self._accept(task)
        if not isinstance(task.likelihood, Categorical):
            raise BadTargets(
                f'task "{task.name}" has the likelihood {task.likelihood}: joint training knows classes only.'
            )
        tasks = (*self.seen, task)
        seed = seed_of(self.seed, len(self.seen), generator)
        network = MultiHeadNetwork(self.architecture, [t.classes for t in tasks], seed)
        held = [t.validation for t in tasks if t.validation is not None]
        options: dict[str, Any] = {
            "validation": JointData(held) if len(held) == len(tasks) else None,
            "progress": progress,
            "epochs": EPOCHS,
        } | self.training
        dice = torch.Generator().manual_seed(seed)
        train(
            network, JointData([t.train for t in tasks]), isotropic(network, self.precision), generator=dice, **options
        )
        self.seen, self.network = tasks, network
        return network

    def predict(
        self, x: Tensor | Mapping[str, Any], task: str, *, generator: torch.Generator | None = None
    ) -> Prediction:
        number = self._number(task)
        assert self.network is not None
        assert isinstance(x, Tensor)
        which = torch.full((len(x),), number)
        whole = plain_prediction(self.network, {"x": x, "which": which}, Categorical())
        logits = whole.logits[..., : self.seen[number].classes]
        return Prediction(logits.softmax(-1), whole.epistemic, whole.aleatoric, Categorical(), logits)


class JointData(Dataset[dict[str, Tensor]]):
    """The data of many tasks as one: each example knows which task it is of."""

    def __init__(self, parts: Sequence[Any]) -> None:
        pairs = [gathered(part) for part in parts]
        self.x = torch.cat([x for x, _ in pairs])
        self.labels = torch.cat([y for _, y in pairs])
        self.which = torch.cat([torch.full((len(y),), k) for k, (_, y) in enumerate(pairs)])

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.x[index], "which": self.which[index], "labels": self.labels[index]}


class MultiHeadNetwork(nn.Module):
    """A body with many heads: an example's logits are those of its own task's head, and never another's."""

    def __init__(self, architecture: Architecture, outputs: Sequence[int], seed: int) -> None:
        super().__init__()
        columns = [architecture.grow([], n, seed + k).module for k, n in enumerate(outputs)]
        self.slot, self.most = architecture.head, max(outputs)
        self.heads = nn.ModuleList(column.get_submodule(self.slot) for column in columns)
        self.body = columns[0]
        self.body.set_submodule(self.slot, nn.Identity())

    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        out = torch.full((len(x), self.most), NEVER, dtype=x.dtype, device=x.device)
        try:
            for k in which.unique().tolist():
                rows = (which == k).nonzero().squeeze(1)
                self.body.set_submodule(self.slot, self.heads[k])
                logits = self.body(x[rows])
                out = out.index_put((rows[:, None], torch.arange(logits.shape[1])[None]), logits)
        finally:
            # A head in two places at once would be counted, saved and restored twice.
            self.body.set_submodule(self.slot, nn.Identity())
        return out
