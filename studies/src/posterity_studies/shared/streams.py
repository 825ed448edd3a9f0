"""Streams of tasks from data sets on disk: split, permuted and mixed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from posterity.errors import NoData
from posterity.progressive import Stream, Task
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


def split_by_class(
    name: str, train: Pair, validation: Pair | None, test: Pair | None, groups: Sequence[Sequence[int]]
) -> Stream:
    """A task for each group of classes, labelled from 0 within the group: "split MNIST" has the groups (0, 1), (2, 3), …"""
    tasks = []
    for group in groups:
        title = f"{name} {'/'.join(map(str, group))}"
        parts = [_within(part, group, title) for part in (train, validation, test)]
        assert parts[0] is not None
        tasks.append(Task(title, parts[0], parts[1], parts[2], len(group)))
    return Stream(f"split {name}", tasks)


def permuted(
    name: str,
    train: Pair,
    validation: Pair | None,
    test: Pair | None,
    tasks: int,
    generator: torch.Generator,
    classes: int | None = None,
) -> Stream:
    """The same examples in every task, their features in an order of its own; the first task has them as they are."""
    classes = int(train[1].max()) + 1 if classes is None else classes
    features = train[0][0].numel()
    made = []
    for number in range(tasks):
        order = torch.randperm(features, generator=generator) if number else torch.arange(features)
        parts = [None if part is None else (_reordered(part[0], order), part[1]) for part in (train, validation, test)]
        assert parts[0] is not None
        made.append(Task(f"{name} permuted {number}", parts[0], parts[1], parts[2], classes))
    return Stream(f"permuted {name}", made)


def _within(part: Pair | None, group: Sequence[int], title: str) -> Pair | None:
    if part is None:
        return None
    x, y = part
    index = torch.tensor(list(group))
    kept = torch.isin(y, index)
    if not kept.any():
        raise NoData(
            f'"{title}": there is no example of the classes {list(group)}, the labels are {y.unique().tolist()}.'
        )
    return x[kept], (y[kept][:, None] == index).long().argmax(1)


def _reordered(x: Tensor, order: Tensor) -> Tensor:
    return x.flatten(1)[:, order].view_as(x)
