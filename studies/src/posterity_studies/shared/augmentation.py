"""Small affine changes of images, under which the class stays the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class Affine:
    """Images turned, stretched, sheared and shifted a little, each by a random amount of its own."""

    def __init__(self, amount: float, seed: int) -> None:
        self.amount, self.generator = amount, torch.Generator().manual_seed(seed)

    def __call__(self, x: Tensor) -> Tensor:
        change = self.amount * torch.randn(len(x), 2, 2, generator=self.generator)
        shift = 4 * self.amount * (torch.rand(len(x), 2, 1, generator=self.generator) - 0.5)
        maps = torch.cat((torch.eye(2) + change, shift), 2)
        return F.grid_sample(x, F.affine_grid(maps, list(x.shape), align_corners=False), align_corners=False)


class Mirror:
    """Every other image, at random, left for right: clothes are worn either way."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, x: Tensor) -> Tensor:
        turned = torch.rand(len(x), 1, 1, 1, generator=self.generator) < 0.5
        return torch.where(turned, x.flip(-1), x)
