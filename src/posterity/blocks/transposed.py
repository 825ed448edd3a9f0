"""Linear layers that keep their weight the other way round, inputs × outputs, as GPT-2's `Conv1D` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks.linear import LinearLayer, joined, split


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
