"""Residual networks in torchvision's layout, and their ImageNet weights: no vision package is needed.

Parameters have torchvision's names (`layer1.0.downsample.0.weight`, …), so that its checkpoints fit. No activation works in
place: what keeps a layer's output for its backward pass would find it overwritten.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from posterity.arrays import read_arrays
from posterity.errors import BadCheckpoint, BadData, NoDataSet
from posterity.idx import folder_of

MEAN = (0.48502, 0.45796, 0.40760)
STD = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels in [0, 1]: what the weights in the data root were trained with."""

LEAST_SIDE = 32
"""Smaller images have no pixel left in the last stage but padding."""

IMAGENET_CLASSES = 1000


def resnet18(num_classes: int = IMAGENET_CLASSES) -> ResNet:
    """ResNet-18 (He et al., 2016): 11,689,512 parameters with a thousand classes."""
    return ResNet("basic", (2, 2, 2, 2), num_classes, stride_in_1x1=False)


def resnet50(num_classes: int = IMAGENET_CLASSES, *, stride_in_1x1: bool = False) -> ResNet:
    """ResNet-50 (He et al., 2016): 25,557,032 parameters with a thousand classes.

    Args:
        num_classes: outputs of the head.
        stride_in_1x1: whether a bottleneck's first 1×1 convolution halves the resolution, as published ("v1"); otherwise its
            3×3 convolution does ("v1.5", torchvision's).
    Returns:
        The network with random weights.
    """
    return ResNet("bottleneck", (3, 4, 6, 3), num_classes, stride_in_1x1=stride_in_1x1)


def imagenet_resnet50(
    num_classes: int = IMAGENET_CLASSES, *, freeze_norms: bool = True, root: Path | None = None
) -> ResNet:
    """ResNet-50 with the ImageNet weights of the data root, in evaluation mode.

    Args:
        num_classes: with another number than a thousand the head is a new one, at zero.
        freeze_norms: whether norm layers are constants: statistics and affine parameters stay as they are, also in training.
        root: the data root; `POSTERITY_DATA` by default.
    Returns:
        The network. Its inputs are images in [0, 1] that went through `normalised`.
    Raises:
        NoDataSet: if the weights are not there.
        BadCheckpoint: if they do not fit.
    """
    model = resnet50(num_classes, stride_in_1x1=True)
    state = read_weights(folder_of("resnet50_imagenet", root) / "resnet50_imagenet_fp16.npz")
    if num_classes != IMAGENET_CLASSES:
        state |= {"fc.weight": torch.zeros_like(model.fc.weight), "fc.bias": torch.zeros_like(model.fc.bias)}
    load_weights(model, state)
    return (frozen_norms(model) if freeze_norms else model).eval()


def normalised(x: Tensor) -> Tensor:
    """Images (n, 3, height, width) in [0, 1] as the ImageNet weights want them."""
    mean, std = (torch.tensor(v, dtype=x.dtype, device=x.device).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (x - mean) / std


class ResNet(nn.Module):
    """A residual network for 3-channel images of any size from 32×32."""

    def __init__(
        self, kind: Literal["basic", "bottleneck"], depths: Sequence[int], num_classes: int, *, stride_in_1x1: bool
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
        return self.head(self.after_stage(self.stem(x), 0))

    def stem(self, x: Tensor) -> Tensor:
        """What the first stage sees. `BadData` for images of another form."""
        if x.ndim != 4 or x.shape[1] != 3 or min(x.shape[2:]) < LEAST_SIDE:
            raise BadData(
                f"a ResNet takes images of shape (n, 3, height, width), {LEAST_SIDE} pixels a side at least, not "
                f"{tuple(x.shape)}: convert grey images with x.expand(-1, 3, -1, -1), and resize small ones."
            )
        first: Tensor = self.maxpool(relu(self.bn1(self.conv1(x))))
        return first

    def after_stage(self, x: Tensor, stage: int) -> Tensor:
        """Feature maps of the last stage, from those after `stage` (0 is the stem): what frozen stages give can be kept."""
        for later in range(stage, self.stages):
            x = self.get_submodule(f"layer{later + 1}")(x)
        return x

    def head(self, x: Tensor) -> Tensor:
        """Logits, from the last stage's feature maps."""
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


class FrozenBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation by constants: it stays in evaluation mode when its network is trained."""

    def train(self, mode: bool = True) -> FrozenBatchNorm2d:
        """Nothing: statistics stay as they are."""
        return super().train(False)


def frozen_norms(model: ResNet) -> ResNet:
    """The same network, in place, with norm layers that are constants: no prior, no gradient, no moving statistics."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = FrozenBatchNorm2d
            module.requires_grad_(False)
            module.eval()
    return model


def read_weights(path: Path) -> dict[str, Tensor]:
    """A checkpoint from an .npz file of arrays by torchvision's names, in float32."""
    try:
        with zipfile.ZipFile(path) as file:
            names = [name.removesuffix(".npy") for name in file.namelist()]
    except (OSError, zipfile.BadZipFile) as error:
        raise NoDataSet(f"{path} cannot be read as an .npz file ({type(error).__name__}). Get it again.") from None
    return {name: torch.from_numpy(array).float() for name, array in read_arrays(path, names).items()}


def load_weights(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put a checkpoint into a network, if it fits in every name and shape; otherwise nothing is changed.

    Args:
        model: the network.
        state: tensors by torchvision's names. `num_batches_tracked`, which nothing computes with, may be absent.
    Raises:
        BadCheckpoint: if a tensor is missing, is not the network's, has another shape, or is not finite.
    """
    own = {name: x for name, x in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    given = {name: x for name, x in state.items() if not name.endswith("num_batches_tracked")}
    problems = [f'"{name}" is missing' for name in own if name not in given]
    problems += [f'"{name}" is not in the network' for name in given if name not in own]
    for name in own.keys() & given.keys():
        if own[name].shape != given[name].shape:
            sizes = ["×".join(map(str, x.shape)) for x in (given[name], own[name])]
            problems.append(f'"{name}" is {sizes[0]} in the checkpoint and {sizes[1]} in the network')
        elif not bool(torch.isfinite(given[name]).all()):
            problems.append(f'"{name}" has entries that are not finite')
    if problems:
        rest = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise BadCheckpoint(
            f"the checkpoint does not fit the network: {'; '.join(sorted(problems)[:3])}{rest}. Build the network that it was "
            "made for (another depth, or another num_classes), or get the checkpoint again."
        )
    model.load_state_dict(given, strict=False)
