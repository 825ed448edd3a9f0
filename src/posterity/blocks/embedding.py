"""Embeddings: a linear layer on one-hot rows that are never written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks.base import Layer, Moment, batch_lost
from posterity.blocks.linear import RowMoment
from posterity.errors import BatchLost

VOCABULARY_LIMIT = 8192
"""Beyond this many entries the input factor, diagonal but stored as full, is too large: the block is kept diagonal."""


@dataclass(frozen=True)
class EmbeddingLayer(Layer):
    """W = weightᵀ, embedding dimension × vocabulary. The input factor is diagonal: how often each entry is met."""

    padding: int | None

    @property
    def separable(self) -> bool:
        return self.inp <= VOCABULARY_LIMIT

    @classmethod
    def of(cls, module: nn.Embedding, bias: bool) -> EmbeddingLayer:
        """As the module has it."""
        return cls(module.embedding_dim, module.num_embeddings, False, module.padding_idx)

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        return parameters["weight"].mT

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        return {"weight": matrix.mT}

    def spread(self, a: Tensor, out: Tensor, examples: int) -> tuple[Tensor, Tensor]:
        """Positions that all examples share, (1, T) or (T,), become a row for each example.

        The network adds them to tensors with a batch dimension, so that its outputs stay the same; but now every example
        has a gradient of its own. Only numbers that count up by one or are all the same are taken for such a row.
        """
        row = a[0] if a.ndim == 2 and len(a) == 1 else a
        if examples == 1 or row.ndim != 1 or not _shared(row):
            return a, out
        if a.ndim == 1 and len(row) == examples:
            if bool((row.diff() == 0).any()):
                return a, out  # one index for each example, all the same
            raise BatchLost(
                f"an embedding is looked up at the numbers {int(row[0])} to {int(row[-1])} in a batch of {examples} examples: "
                "these may be positions that all examples share, or one index for each. Use another batch size."
            )
        return row.expand(examples, -1), out.reshape(1, len(row), -1).expand(examples, -1, -1)

    def by_example(self, x: Tensor, examples: int, name: str) -> Tensor:
        """Indices have no features: examples may be their first dimension or, time first, the second.

        A folded batch is not guessed at: a row of another length is most often a table of places that all examples
        share, and what comes back to it is already summed over them.
        """
        if not x.is_floating_point():
            x, shape = x.long(), x.shape
        else:
            shape = x.shape[:-1]
        if len(shape) and shape[0] == examples:
            return x
        if len(shape) > 1 and shape[1] == examples and shape[0] > 1:
            return x.transpose(0, 1)
        if examples == 1:
            return x.unsqueeze(0)
        raise batch_lost(x, examples, name)

    def positions(self, a: Tensor, s: Tensor) -> int:
        return a[0].numel()

    def rows(self, a: Tensor, s: Tensor) -> tuple[Float[Tensor, "n t inp"], Float[Tensor, "n t out"]]:
        a, s = a.reshape(len(a), -1), s.reshape(len(s), -1, self.out)
        return self._kept(F.one_hot(a, self.inp).to(s.dtype)), s

    def _kept(self, per_entry: Tensor) -> Tensor:
        """The padding entry gets no gradient, so it counts for nothing."""
        if self.padding is not None:
            per_entry[..., self.padding] = 0
        return per_entry

    def input_moment(self, shape: torch.Size) -> Moment:
        return _Counts(self)

    def output_moment(self) -> Moment:
        return RowMoment(bias=False)

    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        a, s = a.reshape(len(a), -1), s.reshape(len(s), -1, self.out)
        index = a[:, None, :].expand(-1, self.out, -1)
        return self._kept(s.new_zeros(len(a), self.out, self.inp).scatter_add_(2, index, s.mT))

    def squares(self, calls: Sequence[tuple[Tensor, Tensor]]) -> Float[Tensor, "out inp"]:
        """Only entries that an example meets have a gradient: no matrix over the vocabulary is formed for an example."""
        a = torch.cat([a.reshape(len(a), -1) for a, _ in calls], 1)
        s = torch.cat([s.reshape(len(s), -1, self.out) for _, s in calls], 1).flatten(0, 1)
        example = torch.arange(len(a), device=a.device)[:, None]
        met, place = torch.unique((example * self.inp + a).flatten(), return_inverse=True)
        gradient = s.new_zeros(len(met), self.out).index_add_(0, place, s)
        total = s.new_zeros(self.inp, self.out).index_add_(0, met % self.inp, gradient.square_())
        return self._kept(total.mT)


def _shared(row: Tensor) -> bool:
    steps = row.diff()
    return len(steps) > 0 and bool((steps == steps[0]).all()) and int(steps[0]) in (0, 1)


class _Counts(Moment):
    def __init__(self, layer: EmbeddingLayer) -> None:
        super().__init__()
        self.layer = layer
        self.counts = torch.zeros(layer.inp, dtype=torch.float64)

    def add(self, a: Tensor) -> None:
        counts = torch.bincount(a.flatten(), minlength=self.layer.inp)
        self.counts = self.counts.to(counts.device) + self.layer._kept(counts)
        self.rows += a.numel()

    def matrix(self) -> Float[Tensor, "inp inp"]:
        return torch.diag(self.counts)
