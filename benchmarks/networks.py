"""The networks that speed and memory are measured on, written out so that no vision package is needed.

ResNets keep the parameter names of the common pretrained checkpoints (`layer1.0.downsample.0.weight`, …).
No activation works in place: a library that keeps a layer's output for its backward pass would find it
overwritten.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from posterity.lenet import lenet5


def resnet18(num_classes: int = 1000) -> "ResNet":
    """ResNet-18 (He et al., 2016): 11,689,512 parameters with a thousand classes."""
    return ResNet("basic", (2, 2, 2, 2), num_classes, stride_in_1x1=False)


def resnet50(num_classes: int = 1000, *, stride_in_1x1: bool = False) -> "ResNet":
    """ResNet-50 (He et al., 2016): 25,557,032 parameters with a thousand classes.

    `stride_in_1x1` halves the resolution in a bottleneck's first 1×1 convolution, as published;
    otherwise its 3×3 convolution does, as most checkpoints of today were trained.
    """
    return ResNet("bottleneck", (3, 4, 6, 3), num_classes, stride_in_1x1=stride_in_1x1)


class ResNet(nn.Module):
    """A residual network for 3-channel images of any size from 32×32."""

    def __init__(
        self,
        kind: Literal["basic", "bottleneck"],
        depths: Sequence[int],
        num_classes: int,
        *,
        stride_in_1x1: bool,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inp = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            blocks: list[nn.Module] = []
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                if kind == "basic":
                    blocks.append(Basic(inp, width, stride))
                    inp = width
                else:
                    blocks.append(Bottleneck(inp, width, stride, stride_in_1x1=stride_in_1x1))
                    inp = 4 * width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inp, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.maxpool(relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


class Basic(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inp: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inp, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inp, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, at the resolution its stride leaves."""
        out = relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions beside a shortcut; four times as many channels leave as the 3×3 sees."""

    def __init__(self, inp: int, width: int, stride: int, *, stride_in_1x1: bool) -> None:
        super().__init__()
        first, second = (stride, 1) if stride_in_1x1 else (1, stride)
        self.conv1 = nn.Conv2d(inp, width, 1, stride=first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = _shortcut(inp, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, at the resolution its stride leaves."""
        out = relu(self.bn1(self.conv1(x)))
        out = relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return relu(out + (x if self.downsample is None else self.downsample(x)))


def _shortcut(inp: int, out: int, stride: int) -> nn.Sequential | None:
    if inp == out and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inp, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))


@dataclass(frozen=True)
class Workload:
    """A network with random images and labels; equal values make equal weights and data in any process."""

    network: Literal["lenet5", "resnet18", "resnet50"]
    examples: int
    batch: int
    shape: tuple[int, int, int]
    classes: int = 10
    seed: int = 0

    def make(self) -> tuple[nn.Module, Tensor, Tensor]:
        """The network in evaluation mode, the images and the labels."""
        build = {"lenet5": lenet5, "resnet18": resnet18, "resnet50": resnet50}[self.network]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = build(self.classes).eval()
            x = torch.randn(self.examples, *self.shape)
            y = torch.randint(self.classes, (self.examples,))
        return model, x, y


LENET5 = Workload("lenet5", examples=10_000, batch=256, shape=(1, 28, 28))
RESNET18 = Workload("resnet18", examples=256, batch=32, shape=(3, 64, 64))
RESNET50 = Workload("resnet50", examples=64, batch=8, shape=(3, 224, 224))


def plain_epoch(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> None:
    """One forward and backward pass over the data, the unit in which every estimator's cost is told.

    It takes gradients of all parameters and no optimiser step. The network stays in the mode it is in:
    evaluation mode costs the same as the passes that estimators make.
    """
    for images, labels in zip(x.split(batch), y.split(batch), strict=True):
        model.zero_grad(set_to_none=True)
        cross_entropy(model(images), labels, reduction="sum").backward()
    model.zero_grad(set_to_none=True)
