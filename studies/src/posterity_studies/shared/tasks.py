"""A small target set, with the validation and test images that all methods share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posterity_studies.shared.datasets import per_class
from posterity_studies.shared.sources import data_set

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """What a seed sees of a target: a few training images, held-out images to tune on, images to test on."""

    train: Pair
    held_out: Pair
    test: Pair

    @classmethod
    def of(cls, target: str, shots: int, seed: int, held_out: int = 300, tested: int = 1000) -> Task:
        """`shots` images per class. The held-out images are the same for all numbers of shots."""
        data = data_set(target)
        generator = torch.Generator().manual_seed(1000 + seed)
        order = torch.randperm(len(data.train[0]), generator=generator)
        held, rest = order[:held_out], order[held_out:]
        x, y = data.train
        test = torch.randperm(len(data.test[0]), generator=generator)[:tested]
        return cls(
            per_class((x[rest], y[rest]), shots, generator),
            (x[held], y[held]),
            (data.test[0][test], data.test[1][test]),
        )
