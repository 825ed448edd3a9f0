"""Linear layers, with any number of dimensions between batch and features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks.base import Layer, Moment, RowMoment, with_ones


@dataclass(frozen=True)
class LinearLayer(Layer):
    """W = [weight | bias]. Dimensions between batch and features are positions."""

    @classmethod
    def of(cls, module: nn.Linear, bias: bool) -> LinearLayer:
        """As the module has it."""
        return cls(module.out_features, module.in_features + bias, bias)

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        return joined(parameters["weight"], parameters["bias"] if self.bias else None)

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        return split(matrix, self.bias)

    def positions(self, a: Tensor, s: Tensor) -> int:
        return s[0, ..., 0].numel()

    def rows(self, a: Tensor, s: Tensor) -> tuple[Float[Tensor, "n t inp"], Float[Tensor, "n t out"]]:
        a, s = a.reshape(len(a), -1, a.shape[-1]), s.reshape(len(s), -1, s.shape[-1])
        return with_ones(a) if self.bias else a, s

    def input_moment(self, shape: torch.Size) -> Moment:
        return Features(self.bias)

    def output_moment(self) -> Moment:
        return Features(bias=False)

    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        a, s = self.rows(a, s)
        return s.mT @ a


class Features(RowMoment):
    """Rows are whatever the last dimension holds."""

    def add(self, a: Tensor) -> None:
        super().add(a.reshape(-1, a.shape[-1]))


def joined(weight: Float[Tensor, "out ..."], bias: Float[Tensor, "out"] | None) -> Float[Tensor, "out inp"]:
    flat = weight.flatten(1)
    return flat if bias is None else torch.cat((flat, bias[:, None]), 1)


def split(matrix: Float[Tensor, "*batch out inp"], bias: bool) -> dict[str, Tensor]:
    return {"weight": matrix[..., :-1], "bias": matrix[..., -1]} if bias else {"weight": matrix}


@dataclass(frozen=True)
class TransposedLinearLayer(LinearLayer):
    """W = [weightᵀ | bias]. All else is a linear layer's."""

    @classmethod
    def of(cls, module: nn.Module, bias: bool) -> TransposedLinearLayer:
        """As the module has it."""
        inp, out = module.weight.shape  # type: ignore[misc]
        return cls(out, inp + bias, bias)

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        return joined(parameters["weight"].mT, parameters["bias"] if self.bias else None)

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        parameters = split(matrix, self.bias)
        return parameters | {"weight": parameters["weight"].mT}
