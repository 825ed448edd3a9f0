"""One weight in two roles: the embedding of words that is also the head that predicts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks.base import Block, DiagonalLayer, batch_first, with_ones
from posterity.blocks.embedding import EmbeddingLayer
from posterity.blocks.linear import LinearLayer


@dataclass(frozen=True)
class TiedLayer(DiagonalLayer):
    """W = [weightᵀ; bias], the head's bias a last row: embedding dimension (+ 1) × vocabulary.

    A call with indices is the embedding's and one with real numbers the head's. In the head inputs and gradients change
    places.
    """

    words: EmbeddingLayer

    @classmethod
    def of(cls, words: EmbeddingLayer, bias: bool) -> TiedLayer:
        return cls(words.out + bias, words.inp, bias, words)

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        weight = parameters["weight"].mT
        return torch.cat((weight, parameters["bias"][None])) if self.bias else weight

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        if not self.bias:
            return {"weight": matrix.mT}
        return {"weight": matrix[..., :-1, :].mT, "bias": matrix[..., -1, :]}

    def spread(self, a: Tensor, out: Tensor, examples: int) -> tuple[Tensor, Tensor]:
        return (a, out) if a.is_floating_point() else self.words.spread(a, out, examples)

    def by_example(self, x: Tensor, examples: int, name: str) -> Tensor:
        return batch_first(x, examples, name) if x.is_floating_point() else self.words.by_example(x, examples, name)

    def positions(self, a: Tensor, s: Tensor) -> int:
        return s[0, ..., 0].numel()

    def rows(self, a: Tensor, s: Tensor) -> tuple[Float[Tensor, "n t inp"], Float[Tensor, "n t out"]]:
        if a.is_floating_point():
            features, logits = a.reshape(len(a), -1, a.shape[-1]), s.reshape(len(s), -1, self.inp)
            return logits, with_ones(features) if self.bias else features
        one_hot, gradient = self.words.rows(a, s)
        if not self.bias:
            return one_hot, gradient
        return one_hot, torch.cat((gradient, gradient.new_zeros(*gradient.shape[:-1], 1)), -1)

    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        if a.is_floating_point():
            inputs, gradient = self.rows(a, s)
            return gradient.mT @ inputs
        found = self.words.gradients(a, s)
        return torch.cat((found, found.new_zeros(len(found), 1, self.inp)), 1) if self.bias else found


def head_of(first: Block, second: Block, model: nn.Module) -> Block | None:
    """An embedding and a linear layer that share their weight, as one block; None if they are something else."""
    if not (isinstance(first.layer, EmbeddingLayer) and type(second.layer) is LinearLayer):
        return None
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if parameters[first.parameters["weight"]] is not parameters[second.parameters["weight"]]:
        return None
    layer = TiedLayer.of(first.layer, second.layer.bias)
    names = dict(first.parameters) | ({"bias": second.parameters["bias"]} if second.layer.bias else {})
    return Block(first.name, layer, names, (*first.modules, *second.modules))


def why_apart(first: Block, second: Block, model: nn.Module) -> str | None:
    """Why two modules that share a parameter are not one block called from two places, if they are not."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    same = {role: parameters[full] for role, full in first.parameters.items()}
    again = {role: parameters[full] for role, full in second.parameters.items()}
    if not first.layer.separable:
        return f'it shares parameters with "{first.name}", and each normalises in its own way'
    if first.layer == second.layer and all(same.get(role) is p for role, p in again.items()):
        return None
    shared = [role for role, p in again.items() if any(p is q for q in same.values())]
    return f'it shares its {" and ".join(shared)} with "{first.name}" in another role'
