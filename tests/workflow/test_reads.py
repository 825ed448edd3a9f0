"""Examples are read once into memory: at most three reads of each outside training, whatever is made of them."""

from __future__ import annotations

import pytest
import torch
from outcomes import network, points, source, trained
from torch import Tensor
from torch.utils.data import Dataset

import posterity as pt


class Counted(Dataset[tuple[Tensor, Tensor]]):
    """A data set that counts how often each example is asked for."""

    def __init__(self, n: int) -> None:
        self.x, self.y = points(0, n)
        self.reads = torch.zeros(n, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        self.reads[i] += 1
        return self.x[i], self.y[i]


@pytest.mark.parametrize(
    "verb",
    [
        lambda data: pt.adapt(network(0), data, source(0), progress=False),
        lambda data: pt.learn(network(0), data, progress=False),
        lambda data: pt.posterior(trained(0), data, progress=False),
        lambda data: pt.posterior(trained(0), data, blocks=["2"], progress=False),
    ],
    ids=["adapt", "learn", "posterior", "last layer"],
)
def test_each_example_is_read_at_most_three_times(verb) -> None:
    data = Counted(60)
    verb(data)
    assert int(data.reads.min()) >= 1
    assert int(data.reads.max()) <= 3
