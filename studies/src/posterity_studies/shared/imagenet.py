"""What a ResNet-50 that knows ImageNet says of pictures: pooled features for a head, or maps for its last stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from posterity.idx import folder_of
from posterity_studies.shared.features import FrozenNetwork, weights_name
from posterity_studies.shared.resnet import ResNet, imagenet_resnet50, normalised

POPULATION = 1_281_167
"""Pictures of ImageNet's training set: what a prior learned from a sample of them stands for."""


def pooled(root: Path | None = None) -> FrozenNetwork:
    """2,048 numbers a picture: the last stage's maps, averaged over positions."""
    return _frozen("pooled", lambda net, x: net.avgpool(net.after_stage(net.stem(x), 0)).flatten(1), root)


def encoder() -> nn.Module:
    """`--encoder posterity_studies.shared.imagenet:encoder` of the command line: the weights in the data root."""
    return pooled().network()


def third_stage(root: Path | None = None) -> FrozenNetwork:
    """Maps of 1,024 channels: what the last stage sees."""

    def maps(net: ResNet, x: Tensor) -> Tensor:
        x = net.stem(x)
        for stage in (1, 2, 3):
            x = net.get_submodule(f"layer{stage}")(x)
        return x

    return _frozen("layer3", maps, root)


def _frozen(kind: str, of: Callable[[ResNet, Tensor], Tensor], root: Path | None) -> FrozenNetwork:
    path = folder_of("resnet50_imagenet", root) / "resnet50_imagenet_fp16.npz"
    return FrozenNetwork(f"resnet50-{kind}-{weights_name(path)}", lambda: _Part(imagenet_resnet50(root=root), of))


class _Part(nn.Module):
    def __init__(self, network: ResNet, of: Callable[[ResNet, Tensor], Tensor]) -> None:
        super().__init__()
        # A third faster on a processor, with the same values up to rounding.
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.of = of

    def forward(self, x: Tensor) -> Tensor:
        return self.of(self.network, normalised(x).contiguous(memory_format=torch.channels_last)).contiguous()
