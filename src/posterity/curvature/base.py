"""What every estimator of curvature is: a frozen choice that starts an accumulator for each block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from posterity.algebra import Matrix
from posterity.blocks import Block, Call
from posterity.blocks.base import Resumable
from posterity.blocks.linear import sum_dtype
from posterity.curvature.likelihoods import AutomaticLabels, Labels
from posterity.data.batches import Workers
from posterity.data.provenance import Provenance

AUTOMATIC = AutomaticLabels()


@dataclass(frozen=True)
class Estimator(ABC):
    """How a block's Fisher information is approximated, and over which labels."""

    labels: Labels = AUTOMATIC

    @abstractmethod
    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        """An empty sum for one block. `dtype` is the precision results are given in."""

    @property
    def seen(self) -> Provenance:
        """What the examples were that its settings were made from: none, unless it holds something that was learned."""
        return Provenance.none()

    def memory(self, block: Block) -> int:
        """Bytes that a block's sum takes: here of two factors, and of one number a weight where there are none."""
        if not block.layer.separable:
            return 8 * block.layer.out * block.layer.inp
        return sum(side**2 * sum_dtype(side, torch.float32).itemsize for side in block.shape)


class Accumulator(Resumable, ABC):
    """The running curvature of one block.

    For each batch: `see_input` for every call, then `see_gradients` once for every backward pass. `phases` passes over the
    data are made, with `next_phase` between them.
    """

    phases = 1
    needs_inputs = True
    """Whether inputs must be kept until the gradients arrive."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        self.block, self.layer, self.dtype = block, block.layer, dtype

    def see_input(self, a: Tensor) -> None:
        """The input of a call, batch first."""

    @abstractmethod
    def see_gradients(self, calls: list[Call], last: bool) -> None:
        """All calls of the block in one backward pass; `last` if no other follows for this batch."""

    def next_phase(self, workers: Workers) -> None:
        """The data has been seen once; another round begins."""

    @abstractmethod
    def result(self, workers: Workers) -> Matrix:
        """The sum over the data of all workers."""
