"""Embeddings: a linear layer on one-hot rows that are never written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks.base import Layer, Moment, batch_lost
from posterity.blocks.linear import Features
from posterity.errors import TooLarge

VOCABULARY_LIMIT = 8192
"""Beyond this many entries the (diagonal, but stored as full) input factor is refused."""


@dataclass(frozen=True)
class EmbeddingLayer(Layer):
    """W = weightᵀ, embedding dimension × vocabulary. The input factor is diagonal: how often each entry is met."""

    padding: int | None

    @classmethod
    def of(cls, module: nn.Embedding, bias: bool) -> EmbeddingLayer:
        return cls(module.embedding_dim, module.num_embeddings, False, module.padding_idx)

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        return parameters["weight"].mT

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        return {"weight": matrix.mT}

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
        if self.inp > VOCABULARY_LIMIT:
            raise TooLarge(
                f"an embedding of {self.inp} entries would need a {self.inp}×{self.inp} input factor "
                f"(limit {VOCABULARY_LIMIT}): use Diagonal(), or leave the layer out with blocks=..."
            )
        return _Counts(self)

    def output_moment(self) -> Moment:
        return Features(bias=False)

    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        a, s = a.reshape(len(a), -1), s.reshape(len(s), -1, self.out)
        index = a[:, None, :].expand(-1, self.out, -1)
        return self._kept(s.new_zeros(len(a), self.out, self.inp).scatter_add_(2, index, s.mT))


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
