"""What columns of progressive networks are copies of: ResNet-50 with the prior that ImageNet left over all of its layers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

import posterity as pt
from posterity_studies.shared.last_stage import BATCH, HEAD, PICTURES, SIDE, imagenet, prior_file
from posterity_studies.shared.resnet import imagenet_resnet50


@dataclass(frozen=True, eq=False)
class Origin:
    """A network at the weights of a source, and the prior that the source left over all layers but the head."""

    model: nn.Module
    prior: pt.Gaussian
    laterals: str
    head: str = HEAD


@cache
def imagenet_columns(estimator: str = "kfac") -> Origin:
    """ResNet-50, laterals at its four downsampling convolutions. The prior is read from its file, or made if there is none.

    Eigenvectors of all blocks are computed once and kept beside the file.
    """
    # Which is also a program: imported before it starts, it would be there twice.
    from posterity_studies.shared import imagenet_prior

    path = prior_file(estimator)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        imagenet_prior.learn(path, PICTURES, SIDE, estimator, BATCH)
    prior = pt.load(path).without(HEAD)
    prior.keep_frames(path.with_suffix(".frames.safetensors"))
    return Origin(imagenet_resnet50(), prior, "layer*.0.downsample.0")


@cache
def last_stages() -> Origin:
    """ResNet-50's last stage and head, on maps of the stage before, which all columns share: one lateral of the four is left."""
    source = imagenet()
    return Origin(source.network(1), source.prior.without(HEAD), "layer4.0.downsample.0")


@cache
def made_up_columns() -> Origin:
    """A small network that knows six made-up classes: for quick checks without a data root."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [
            ("conv", nn.Conv2d(3, 4, 3, stride=2, padding=1)),
            ("first", nn.ReLU()),
            ("down1", nn.Conv2d(4, 6, 1)),
            ("second", nn.ReLU()),
            ("down2", nn.Conv2d(6, 8, 1, stride=2)),
            ("avgpool", nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1))),
            ("flat", nn.Flatten()),
            ("fc", nn.Linear(8, 6)),
        ]
        model = nn.Sequential(OrderedDict(layers)).eval()
        x = torch.randn(60, 3, 8, 8)
    prior = pt.prior(model, x, estimator=pt.KFAC(), progress=False)
    return Origin(model, prior.without("fc"), "down*")
