"""Streams made of one labelled set: its classes in groups, or its pixels in new orders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posterity.errors import NoData
from posterity.progressive.task import Stream, Task

Pair = tuple[Tensor, Tensor]


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
