"""The last stage of a ResNet-50 and a new head, on maps of the stage before, with the prior that ImageNet left over them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

import posterity as pt
from posterity_studies import folders
from posterity_studies.shared.datasets import imagenet_samples
from posterity_studies.shared.features import features
from posterity_studies.shared.imagenet import POPULATION, third_stage
from posterity_studies.shared.resnet import imagenet_resnet50

HEAD = "fc"
PICTURES, SIDE, BATCH = 1000, 224, 8
"""Of the prior: one picture a class, their pixels a side, and how many at a time."""


class LastStage(nn.Module):
    """A stage, an average over positions and a linear head: maps to logits."""

    def __init__(self, layer4: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.layer4 = layer4
        self.avgpool: nn.Module = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(features, classes)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, maps: Tensor) -> Tensor:
        """Logits of a batch of maps."""
        # A third faster on a processor, with the same values up to rounding.
        logits: Tensor = self.fc(self.features(maps.contiguous(memory_format=torch.channels_last)))
        return logits

    def features(self, maps: Tensor) -> Tensor:
        """What the head sees."""
        return self.avgpool(self.layer4(maps)).flatten(1)


@dataclass(frozen=True, eq=False)
class Source:
    """A network that knows another task, and the prior that this left over its last stage and head."""

    prior: pt.Gaussian
    stage: nn.Module
    features: int

    def network(self, classes: int) -> LastStage:
        """The stage as the source left it, with a new head at zero: its own copy of the weights."""
        model = LastStage(copy.deepcopy(self.stage), self.features, classes).eval()
        for name, p in model.named_parameters():
            p.requires_grad_(name.startswith(HEAD) or name.rpartition(".")[0] in self.prior.mean)
        return model


def prior_file(estimator: str = "kfac") -> Path:
    """Where the prior of ImageNet is kept: made once, by `posterity_studies.shared.imagenet_prior`."""
    return folders.cache() / f"imagenet-resnet50-{estimator}-{PICTURES}-{SIDE}.safetensors"


@cache
def imagenet(estimator: str = "kfac") -> Source:
    """ResNet-50's last stage with its part of the prior of ImageNet, which is read from its file, or made if there is none.

    Eigenvectors of the stage's blocks are computed once and kept beside the file.
    """
    # Which is also a program: imported before it starts, it would be there twice.
    from posterity_studies.shared import imagenet_prior

    path = prior_file(estimator)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        imagenet_prior.learn(path, PICTURES, SIDE, estimator, BATCH)
    prior = pt.load(path)
    prior = prior.restricted([name for name in prior.blocks if name.startswith("layer4.") or name == HEAD])
    prior.without(HEAD).keep_frames(path.with_suffix(".layer4.frames.safetensors"))
    return Source(prior, imagenet_resnet50().get_submodule("layer4"), 2048)


@cache
def last_stage_kfoc() -> Source:
    """ResNet-50's last stage with the prior that K-FOC, the paper's estimator, leaves over it: from its file, or made now.

    Of the same thousand pictures, but over the last stage and the head alone, on maps of the stage before: minutes instead of
    the hour that all layers take.
    """
    path = folders.cache() / f"imagenet-resnet50-layer4-kfoc-{PICTURES}-{SIDE}.safetensors"
    network = imagenet_resnet50()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        maps = features(third_stage(), imagenet_samples(), SIDE)
        whole = LastStage(network.get_submodule("layer4"), 2048, 1000).eval()
        whole.fc = network.fc
        made = pt.prior(
            whole,
            maps,
            population=POPULATION,
            estimator=pt.KFOC(),
            batch_size=BATCH,
            text=f"ResNet-50 (v1) on ImageNet, last stage; K-FOC of {PICTURES} pictures, one a class, at {SIDE} px.",
            generator=torch.Generator().manual_seed(0),
            checkpoint=path.with_suffix(".partial"),
        )
        made.save(path)
    prior = pt.load(path)
    prior.without(HEAD).keep_frames(path.with_suffix(".frames.safetensors"))
    return Source(prior, network.get_submodule("layer4"), 2048)


@cache
def made_up() -> Source:
    """A small stage that knows six made-up classes: for quick checks without a data root."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        stage = nn.Sequential(nn.Conv2d(6, 8, 2, padding=1), nn.ReLU())
        network = LastStage(stage, 8, 6)
        nn.init.normal_(network.fc.weight, std=0.3)
        x = torch.randn(60, 6, 2, 2)
    generator = torch.Generator().manual_seed(0)
    return Source(pt.prior(network.eval(), x, estimator=pt.KFAC(), generator=generator, progress=False), stage, 8)


def source(name: str) -> Source:
    """The source of a set: made-up sets have one of their own."""
    return made_up() if name.startswith("made-up") else imagenet()
