"""Training examples, read once and held in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from posterity.brief import brief
from posterity.data.batches import Batch, Data, batches
from posterity.errors import NoData


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """All training examples at once."""

    __repr__ = brief

    inputs: list[Batch]
    targets: Tensor
    outputs: int
    """Of the network, for each example."""

    @property
    def count(self) -> int:
        """How many examples there are."""
        return len(self.targets)

    @cached_property
    def whole(self) -> Batch:
        """All of them as one batch."""
        return Batch.joined(self.inputs)

    @property
    def data(self) -> Data:
        """The same as data that verbs take: reading it again reads memory."""
        if len(self.inputs[0].positional) == 1 and isinstance(self.inputs[0].positional[0], Tensor):
            return self.whole.positional[0], self.whole.targets
        return [(b.positional[0] if b.positional else dict(b.named), b.targets) for b in self.inputs]

    def rows(self, index: Tensor) -> TrainingSet:
        """Examples by their indices."""
        return TrainingSet([self.whole.rows(index)], self.targets[index], self.outputs)


def read_up_to(data: Data, batch_size: int, most: int, largest: int, device: torch.device) -> list[Batch] | None:
    """The data as batches in memory; None if there are more than `most` examples, or `largest` numbers in their inputs."""
    kept: list[Batch] = []
    count, numbers = 0, 0
    for batch in batches(data, batch_size):
        count += batch.count
        numbers += sum(x.numel() for x in (*batch.positional, *batch.named.values()) if isinstance(x, Tensor))
        if count > most or numbers > largest:
            return None
        kept.append(batch.to(device))
    if not kept:
        raise NoData("the data held no example.")
    return kept
