"""What every estimator of curvature is: a frozen choice that starts an accumulator for each block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import Matrix
from posterity.blocks import Block, Call
from posterity.blocks.base import CHUNK, sum_dtype
from posterity.curvature.batches import Workers
from posterity.curvature.likelihoods import Automatic, Labels

AUTOMATIC = Automatic()

FEW = 8
"""Up to this many positions an example, products of pairs of rows are cheaper than gradients written out."""

CACHED = 1 << 20
"""Entries (4 MB in float32) that a processor's cache holds."""


@dataclass(frozen=True)
class Estimator(ABC):
    """How a block's Fisher information is approximated, and over which labels."""

    labels: Labels = AUTOMATIC

    @abstractmethod
    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        """An empty sum for one block. `dtype` is the precision results are given in."""

    def memory(self, block: Block) -> int:
        """Bytes that a block's sum takes: here of two factors, and of one number a weight where there are none."""
        if not block.layer.separable:
            return 8 * block.layer.out * block.layer.inp
        return sum(side**2 * sum_dtype(side, torch.float32).itemsize for side in block.shape)


class Accumulator(ABC):
    """The running curvature of one block.

    For each batch: `see_input` for every call, then `see_gradients` once for every backward pass. `phases` passes over the
    data are made, with `next_phase` between them.
    """

    phases = 1
    needs_inputs = True
    """Whether inputs must be kept until the gradients arrive."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        self.block, self.layer, self.dtype = block, block.layer, dtype

    def see_input(self, a: Tensor) -> None:  # noqa: B027 (most have no use for it)
        """The input of a call, batch first."""

    @abstractmethod
    def see_gradients(self, calls: list[Call], last: bool) -> None:
        """All calls of the block in one backward pass; `last` if no other follows for this batch."""

    def next_phase(self, workers: Workers) -> None:  # noqa: B027
        """The data has been seen once; another round begins."""

    @abstractmethod
    def result(self, workers: Workers) -> Matrix:
        """The sum over the data of all workers."""


def gradients(block: Block, calls: list[Call], pieces: int | None = None) -> Iterator[Tensor]:
    """Gradient matrices [n, out, inp] of a batch, a bounded piece at a time; the calls of an example are summed."""
    layer = block.layer
    n = len(tensors(calls[0])[0])
    step = pieces or max(1, CHUNK // (layer.out * layer.inp))
    for start in range(0, n, step):
        parts = [layer.gradients(*(x[start : start + step] for x in tensors(call))) for call in calls]
        yield parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def rows(block: Block, calls: list[Call]) -> tuple[Tensor, Tensor]:
    """All positions of a batch as input and gradient rows [n, t, inp] and [n, t, out]; calls one behind the other."""
    parts = [block.layer.rows(*tensors(call)) for call in calls]
    return torch.cat([a for a, _ in parts], 1), torch.cat([s for _, s in parts], 1)


def positions(block: Block, calls: list[Call]) -> int:
    return sum(block.layer.positions(*tensors(call)) for call in calls)


def tensors(call: Call) -> tuple[Tensor, Tensor]:
    """A call's input and its gradient, both there."""
    assert call.a is not None
    assert call.s is not None
    return call.a, call.s


def summed_squares(a: Float[Tensor, "n t inp"], s: Float[Tensor, "n t out"]) -> Float[Tensor, "out inp"]:
    """Σ_n G_n² with G_n = Σ_t s_t a_tᵀ, as one product: the square of a sum is a sum over pairs of positions."""
    t = a.shape[1]
    first, second = torch.triu_indices(t, t, device=a.device)
    twice = torch.where(first == second, 1.0, 2.0).to(s.dtype)
    gradient_pairs = s[:, first] * s[:, second] * twice[:, None]
    return gradient_pairs.flatten(0, 1).T @ (a[:, first] * a[:, second]).flatten(0, 1)
