"""The sets as features of a frozen ResNet-50, and what a seed draws from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from posterity_studies.shared.datasets import gallery
from posterity_studies.shared.datasets.gallery import Gallery
from posterity_studies.shared.features import features
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
def rows(name: str, size: int) -> Rows:
    """Pooled features of a whole set, from the cache or computed now."""
    if name.startswith(MADE_UP):
        return _made_up(name)
    found = pictures_of(name)
    return Rows(features(pooled(), found, size), found.labels, found.tested)


def _made_up(name: str) -> Rows:
    draw = torch.Generator().manual_seed(0)
    classes, each, side = 4, 16, 24
    y = torch.arange(classes * each) % classes
    x = torch.randn(classes, side, generator=draw)[y] + 1.5 * torch.randn(len(y), side, generator=draw)
    if name.endswith("unknown"):
        x = x + 3
    return Rows(x.relu(), y, torch.arange(len(y)) >= len(y) // 2)


@dataclass(frozen=True, eq=False)
class Places:
    """Which pictures of a set a seed draws, and the classes that are among them."""

    present: Tensor
    train: Tensor
    held: Tensor
    test: Tensor


def places(y: Tensor, tested: Tensor, shots: int, seed: int, classes: int | None = None) -> Places:
    """A seed's pictures, of all classes or of so many that it draws. Sets without enough of them validate by what is left."""
    generator = torch.Generator().manual_seed(1000 + seed)
    present = y.unique()
    if classes is not None:
        present = present[torch.randperm(len(present), generator=generator)[:classes]].sort().values
    train, held, test = [], [], []
    for c in present:
        of_class = ((y == c) & ~tested).nonzero().flatten()
        order = of_class[torch.randperm(len(of_class), generator=generator)]
        train.append(order[:shots])
        held.append(order[shots : 2 * shots])
        test.append(((y == c) & tested).nonzero().flatten())
    return Places(present, torch.cat(train), torch.cat(held), torch.cat(test))


def drawn(name: str, unknown: str, size: int, shots: int, seed: int, classes: int | None = None) -> Shots:
    """What a seed draws, as pooled features of whole sets."""
    known = rows(name, size)
    found = places(known.y, known.tested, shots, seed, classes)

    def pair(index: Tensor) -> Pair:
        return known.x[index], torch.searchsorted(found.present, known.y[index])

    return Shots(pair(found.train), pair(found.held), pair(found.test), rows(unknown, size).x)


def drawn_maps(
    name: str, unknown: str, size: int, shots: int, seed: int, classes: int, tested: int, strangers: int
) -> Shots:
    """What a seed draws, as maps that the last stage sees: of these pictures alone, since maps of whole sets are gigabytes.

    The same pictures as `drawn` has for the seed; of test pictures the first `tested` a class, of unknown ones `strangers`.
    """
    if name.startswith(MADE_UP):
        known = _made_up(name)
        found = places(known.y, known.tested, shots, seed, classes)
        outside = _as_maps(_made_up(unknown).x[:strangers])

        def maps(index: Tensor) -> Tensor:
            return _as_maps(known.x[index])

        labels = known.y
    else:
        pictures, others = pictures_of(name), pictures_of(unknown)
        found = places(pictures.labels, pictures.tested, shots, seed, classes)
        # In the order of the classes: every so many of them is of all classes alike.
        spread = torch.arange(0, len(others), max(1, len(others) // strangers))[:strangers]
        outside = features(third_stage(), others.only(spread), size)
        labels = pictures.labels

        def maps(index: Tensor) -> Tensor:
            return features(third_stage(), pictures.only(index), size)

    y = torch.searchsorted(found.present, labels[found.test])
    first = torch.cat([(y == c).nonzero().flatten()[:tested] for c in range(len(found.present))])

    def pair(index: Tensor) -> Pair:
        return maps(index), torch.searchsorted(found.present, labels[index])

    return Shots(pair(found.train), pair(found.held), pair(found.test[first]), outside)


def _as_maps(x: Tensor) -> Tensor:
    return x.view(len(x), -1, 2, 2)
