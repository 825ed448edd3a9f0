"""The networks that speed and memory are measured on, with random weights and images."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from posterity.lenet import lenet5
from posterity_studies.shared.resnet import resnet18, resnet50


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
        known: dict[str, Callable[[int], nn.Module]] = {"lenet5": lenet5, "resnet18": resnet18, "resnet50": resnet50}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = known[self.network](self.classes).eval()
            x = torch.randn(self.examples, *self.shape)
            y = torch.randint(self.classes, (self.examples,))
        return model, x, y


LENET5 = Workload("lenet5", examples=10_000, batch=256, shape=(1, 28, 28))
RESNET18 = Workload("resnet18", examples=256, batch=32, shape=(3, 64, 64))
RESNET50 = Workload("resnet50", examples=64, batch=8, shape=(3, 224, 224))


def plain_epoch(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> None:
    """One forward and backward pass over the data, the unit in which every estimator's cost is given.

    It takes gradients of all parameters and no optimiser step. The network stays in the mode it is in:
    evaluation mode costs the same as the passes that estimators make.
    """
    for images, labels in zip(x.split(batch), y.split(batch), strict=True):
        model.zero_grad(set_to_none=True)
        cross_entropy(model(images), labels, reduction="sum").backward()
    model.zero_grad(set_to_none=True)
