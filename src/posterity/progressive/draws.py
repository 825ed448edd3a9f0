"""Weights of earlier columns, drawn once for every batch that a new column learns from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, write_blocks
from posterity.gaussian import Gaussian

DRAWS_AT_ONCE = 1 << 22
"""Weights (16 MB in float32) drawn in one go: one product a block for many draws."""
MOST = 32


class Draws:
    """Draw number k of a Gaussian as parameters for `run_with`: a function of k and the seed alone.

    So a training run that is stopped and taken up again sees the same draws, whatever was drawn before.
    """

    def __init__(self, gaussian: Gaussian, network: nn.Module, seed: int) -> None:
        self.gaussian, self.seed = gaussian, seed
        self.blocks = find_blocks(network, lambda name, module: name in gaussian.mean)
        self.like = next(network.parameters())
        self.chunk = max(1, min(MOST, DRAWS_AT_ONCE // gaussian.size))
        self.number = -1
        self.held: dict[str, Tensor] = {}

    def at(self, step: int) -> dict[str, Tensor]:
        number, place = divmod(step, self.chunk)
        if number != self.number:
            generator = torch.Generator().manual_seed((self.seed + number * 0x9E3779B97F4A7C15) % 2**63)
            draws = self.gaussian.sample(self.chunk, generator=generator)
            self.held = write_blocks(self.blocks, {name: draw.to(self.like) for name, draw in draws.items()})
            self.number = number
        return {name: values[place] for name, values in self.held.items()}
