"""Streams of tasks from data sets on disk: split, permuted and mixed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from posterity.progressive import Stream, Task, split_by_class
from posterity_studies.shared.datasets import Images, images, per_class

PAIRS = tuple((2 * k, 2 * k + 1) for k in range(5))
"""The classes of the five tasks of a split set: (0, 1), (2, 3), …"""

MIXED = ("mnist", "fashion_mnist", "notmnist")
Pair = tuple[Tensor, Tensor]


def split(name: str, seed: int, shots: int | None = None, held: int = 50, tested: int | None = None) -> Stream:
    """Split MNIST, and split Fashion-MNIST: five tasks of two classes each.

    `shots` training images, `held` validation images (out of the training set) and `tested` test images a class; None is all.
    """
    train, validation, test = _parts(name, seed, shots, held, tested)
    return split_by_class(name, train, validation, test, PAIRS)


def mixed(
    seed: int, shots: int | None = None, held: int = 50, tested: int | None = None, names: Sequence[str] = MIXED
) -> Stream:
    """A whole data set a task: digits, clothes, letters."""
    tasks = []
    for name in names:
        train, validation, test = _parts(name, seed, shots, held, tested)
        tasks.append(Task(name, train, validation, test, 10))
    return Stream("mixed", tasks)


@cache
def _images(name: str) -> Images:
    """Read once: a study makes many streams of one set."""
    return images(name)


def _parts(name: str, seed: int, shots: int | None, held: int, tested: int | None) -> tuple[Pair, Pair, Pair]:
    """Training, validation and test images, drawn by class. No image is in two of them."""
    data = _images(name)
    generator = torch.Generator().manual_seed(1000 + seed)
    x, y = data.train
    order = torch.randperm(len(y), generator=generator)
    x, y = x[order], y[order]
    rank = _rank_within_class(y)
    validation = rank < held
    training = ~validation if shots is None else (rank >= held) & (rank < held + shots)
    test = data.test if tested is None else per_class(data.test, tested, generator)
    return (x[training], y[training]), (x[validation], y[validation]), test


def _rank_within_class(y: Tensor) -> Tensor:
    """For every example, how many of its class come before it."""
    one_hot = torch.nn.functional.one_hot(y)
    return one_hot.cumsum(0).gather(1, y[:, None]).squeeze(1) - 1
