"""The networks of the studies."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from posterity.lenet import lenet5


def fresh(seed: int, classes: int = 10) -> nn.Sequential:
    """LeNet-5 with first weights that belong to the seed; the global randomness stays as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return lenet5(classes)


class SlicedMaxPool(nn.Module):
    """A 2×2 maximum by slices: the same values as torch's pooling, which takes half of LeNet-5's time on a processor."""

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
        x = torch.maximum(x[..., 0:rows:2, :columns], x[..., 1:rows:2, :columns])
        return torch.maximum(x[..., ::2], x[..., 1::2])


def with_fast_pooling(model: nn.Sequential) -> nn.Sequential:
    """A copy of a network with its 2×2 poolings done by slices."""
    twin = copy.deepcopy(model)
    for name, module in list(twin.named_modules()):
        if isinstance(module, nn.MaxPool2d) and repr(module) == repr(nn.MaxPool2d(2)):
            twin.set_submodule(name, SlicedMaxPool())
    return twin


class HalfPrecisionTraining(nn.Sequential):
    """Layers that train in bfloat16, which is twice as fast for many channels; in evaluation mode they are as they are."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            outputs: Tensor = super().forward(x.contiguous(memory_format=torch.channels_last))
        return outputs.float()
