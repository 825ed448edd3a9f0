"""The affine part of normalisation layers: a scale and a shift per feature, a diagonal block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks.base import DiagonalLayer, batch_lost

Norm = (
    nn.LayerNorm | nn.GroupNorm | nn.RMSNorm | nn.modules.batchnorm._BatchNorm | nn.modules.instancenorm._InstanceNorm
)


@dataclass(frozen=True)
class ElementwiseLayer(DiagonalLayer):
    """W = [weight | bias], features × 2 (× 1 without a bias): feature i sees (x̂_i, 1), and no other."""

    shape: tuple[int, ...]
    channels_first: bool
    """Whether features are channels with pixels behind them (batch and group norm), or come last (layer norm)."""
    normalised: Callable[[Tensor], Tensor] = field(repr=False, compare=False)

    @classmethod
    def of(cls, module: Norm, bias: bool) -> ElementwiseLayer:
        weight = module.weight
        assert weight is not None
        shape = tuple(weight.shape)
        match module:
            case nn.LayerNorm():
                channels_first, hat = False, lambda x: F.layer_norm(x, module.normalized_shape, eps=module.eps)
            case nn.RMSNorm():
                channels_first, hat = False, lambda x: F.rms_norm(x, list(module.normalized_shape), eps=module.eps)
            case nn.GroupNorm():
                channels_first, hat = True, lambda x: F.group_norm(x, module.num_groups, eps=module.eps)
            case _:
                channels_first, hat = True, lambda x: _statistics(module, x)
        return cls(weight.numel(), 1 + bias, bias, shape, channels_first, hat)

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        columns = [parameters["weight"]] + ([parameters["bias"]] if self.bias else [])
        return torch.stack([c.flatten() for c in columns], 1)

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        shaped = matrix.unflatten(-2, self.shape)
        return {"weight": shaped[..., 0]} | ({"bias": shaped[..., 1]} if self.bias else {})

    def by_example(self, x: Tensor, examples: int, name: str) -> Tensor:
        """With channels first, [n, folded, channels, ...] always (1 where nothing is folded): no shape is in doubt then."""
        if not self.channels_first:
            return super().by_example(x, examples, name)
        if x.shape[0] % examples:
            raise batch_lost(x, examples, name)
        return x.unflatten(0, (examples, -1))

    def _normalised(self, a: Tensor) -> Tensor:
        return self.normalised(a.flatten(0, 1)).view_as(a) if self.channels_first else self.normalised(a)

    def _features_last(self, x: Tensor) -> Float[Tensor, "n t features"]:
        x = x.movedim(2, -1) if self.channels_first else x.flatten(x.ndim - len(self.shape))
        return x.reshape(len(x), -1, self.out)

    def positions(self, a: Tensor, s: Tensor) -> int:
        return s[0].numel()

    def rows(self, a: Tensor, s: Tensor) -> tuple[Float[Tensor, "n t inp"], Float[Tensor, "n t out"]]:
        """Each (position, feature) is a position of its own whose gradient row has one entry."""
        a, s = self._features_last(self._normalised(a)), self._features_last(s)
        rows = torch.stack((a, torch.ones_like(a)), -1) if self.bias else a[..., None]
        return rows.flatten(1, 2), torch.diag_embed(s).flatten(1, 2)

    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        a, s = self._features_last(self._normalised(a)), self._features_last(s)
        columns = [(s * a).sum(1)] + ([s.sum(1)] if self.bias else [])
        return torch.stack(columns, -1)


def _statistics(module: nn.Module, x: Tensor) -> Tensor:
    """Evaluation mode: running statistics where they are tracked, an instance's own where not."""
    mean, var, eps = module.running_mean, module.running_var, float(module.eps)  # type: ignore[arg-type]
    if not isinstance(mean, Tensor) or not isinstance(var, Tensor):
        return F.instance_norm(x, eps=eps)
    # Given statistics, batch and instance norm are the same. A network in half precision has them so; sums do not.
    return F.batch_norm(x, mean.to(x.dtype), var.to(x.dtype), training=False, eps=eps)
