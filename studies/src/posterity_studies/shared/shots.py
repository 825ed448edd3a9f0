"""The sets as features of a frozen ResNet-50, and what a seed draws from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from posterity_studies.shared.datasets import gallery
from posterity_studies.shared.datasets.gallery import Gallery
from posterity_studies.shared.features import Frozen, features
from posterity_studies.shared.imagenet import pooled, third_stage
from posterity_studies.shared.rivals.training import Pair

SETS = {
    "dtd": "DTD",
    "ucmerced": "UC Merced",
    "oxford_pets": "Pets",
    "cub200": "CUB",
    "caltech101": "Caltech-101",
    "cifar100": "CIFAR-100",
}
UNKNOWN = "cifar10"
UNKNOWN_PER_CLASS = 50
MADE_UP = "made-up"
"""A set without a data root: clusters of numbers instead of features, for quick checks."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A set as rows of features."""

    x: Tensor
    y: Tensor
    tested: Tensor


@dataclass(frozen=True, eq=False)
class Shots:
    """What a seed draws: as many pictures to train with as to validate by, all test pictures, and pictures of no class."""

    train: Pair
    held: Pair
    test: Pair
    unknown: Tensor

    @property
    def both(self) -> Pair:
        """All labels: what those train with who need no validation set."""
        return torch.cat((self.train[0], self.held[0])), torch.cat((self.train[1], self.held[1]))

    @property
    def classes(self) -> int:
        return int(self.train[1].max()) + 1


def pictures_of(name: str) -> Gallery:
    """A set's pictures; of CIFAR-10 the first fifty test pictures a class."""
    found = gallery(name)
    if name != UNKNOWN:
        return found
    tested = found.tested.nonzero().flatten()
    labels = found.labels[tested]
    return found.only(torch.cat([tested[labels == c][:UNKNOWN_PER_CLASS] for c in labels.unique()]))


@cache
def rows(name: str, size: int, layer: str = "pooled") -> Rows:
    """Features of a whole set, from the cache or computed now."""
    if name.startswith(MADE_UP):
        return _made_up(name, layer)
    frozen: Frozen = pooled() if layer == "pooled" else third_stage()
    found = pictures_of(name)
    return Rows(features(frozen, found, size), found.labels, found.tested)


def _made_up(name: str, layer: str) -> Rows:
    draw = torch.Generator().manual_seed(0)
    classes, each, side = 4, 16, 24
    y = torch.arange(classes * each) % classes
    x = torch.randn(classes, side, generator=draw)[y] + 1.5 * torch.randn(len(y), side, generator=draw)
    if name.endswith("unknown"):
        x = x + 3
    return Rows(x.relu(), y, torch.arange(len(y)) >= len(y) // 2)


def drawn(
    name: str, unknown: str, size: int, shots: int, seed: int, classes: int | None = None, layer: str = "pooled"
) -> Shots:
    """A seed's pictures, of all classes or of so many that it draws. Sets without enough of them validate by what is left."""
    known = rows(name, size, layer)
    generator = torch.Generator().manual_seed(1000 + seed)
    present = known.y.unique()
    if classes is not None:
        present = present[torch.randperm(len(present), generator=generator)[:classes]].sort().values
    train, held, test = [], [], []
    for c in present:
        of_class = ((known.y == c) & ~known.tested).nonzero().flatten()
        order = of_class[torch.randperm(len(of_class), generator=generator)]
        train.append(order[:shots])
        held.append(order[shots : 2 * shots])
        test.append(((known.y == c) & known.tested).nonzero().flatten())

    def pair(parts: list[Tensor]) -> Pair:
        index = torch.cat(parts)
        return known.x[index], torch.searchsorted(present, known.y[index])

    return Shots(pair(train), pair(held), pair(test), rows(unknown, size, layer).x)
