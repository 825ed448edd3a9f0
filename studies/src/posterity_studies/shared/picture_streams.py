"""Streams of tasks from sets of colour pictures: one set a task, the first with more classes than the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from posterity.idx import folder_of
from posterity.progressive import Stream, Task
from posterity_studies.shared.datasets import gallery
from posterity_studies.shared.features import features
from posterity_studies.shared.imagenet import third_stage
from posterity_studies.shared.resnet import normalised
from posterity_studies.shared.shots import places
from posterity_studies.shared.washington import Washington

SETS = {
    "caltech101": "Caltech-101",
    "ucmerced": "UC Merced",
    "oxford_pets": "Pets",
    "dtd": "DTD",
    "cub200": "CUB",
    "cifar10": "CIFAR-10",
}
"""In the order in which they come: everyday objects first, then places, animals, textures, birds, small pictures."""


def of_sets(
    seed: int, size: int, classes: tuple[int, int], shots: int, held: int, tested: int, *, maps: bool = False
) -> Stream:
    """A task for each set, with as many classes as said for the first and for each of the others, drawn by the seed.

    `shots` training, `held` validation (at most as many as training) and `tested` test pictures a class. Images as
    tensors, or with `maps` what ResNet-50's last stage sees of them, from the cache or computed now.
    """
    sizes = {"size": size, "shots": shots, "held": held, "tested": tested}
    tasks = [of_set(name, seed, classes=classes[i > 0], **sizes, maps=maps) for i, name in enumerate(SETS)]
    return Stream("sets", tasks)


def of_set(
    name: str, seed: int, size: int, classes: int, shots: int, held: int, tested: int, *, maps: bool = False
) -> Task:
    """One set's task. Without validation pictures (`held` is zero) it has none."""
    pictures = gallery(name)
    drawn = places(pictures.labels, pictures.tested, shots, seed, classes)

    def part(found: Tensor, most: int) -> tuple[Tensor, Tensor]:
        y = torch.searchsorted(drawn.present, pictures.labels[found])
        first = torch.cat([(y == c).nonzero().flatten()[:most] for c in range(len(drawn.present))])
        if maps:
            x = features(third_stage(), pictures.only(found[first]), size)
        else:
            x = normalised(pictures.decoded(found[first].tolist(), size)[0])
        return x, y[first]

    validation = part(drawn.held, held) if held else None
    return Task(name, part(drawn.train, shots), validation, part(drawn.test, tested), len(drawn.present))


def of_washington(size: int, root: Path | None = None) -> Stream:
    """The paper's stream, from the folder `wrgbd` of the data root, images read when they are asked for."""
    stream = Washington(folder_of("wrgbd", root)).stream(size)
    return Stream(stream.name, [_normalised(task) for task in stream])


def made_up(seed: int, held: int = 4, tested: int = 8) -> Stream:
    """Six tasks of noisy patterns, for quick checks without a data root."""
    draw = torch.Generator().manual_seed(seed)
    tasks = []
    for number in range(6):
        classes = 4 if number == 0 else 2
        patterns = torch.randn(classes, 3, 8, 8, generator=draw)

        def part(count: int, patterns: Tensor = patterns) -> tuple[Tensor, Tensor]:
            y = torch.arange(count * len(patterns)) % len(patterns)
            return patterns[y] + 0.5 * torch.randn(len(y), 3, 8, 8, generator=draw), y

        tasks.append(Task(f"pattern {number}", part(4), part(held), part(tested), classes))
    return Stream("made up", tasks)


def _normalised(task: Task) -> Task:
    train, held, test = (_Normalised(part) for part in (task.train, task.validation, task.test))
    return Task(task.name, train, held, test, task.classes)


class _Normalised(Dataset[tuple[Tensor, int]]):
    """Pictures as the ImageNet weights want them."""

    def __init__(self, pictures: Any) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x, y = self.pictures[index]
        return normalised(x[None])[0], y
