"""Weights of earlier columns, drawn once for every batch that a new column learns from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, write_blocks
from posterity.gaussian import Gaussian
from posterity.gaussian.spread import Spread

DRAWS_AT_ONCE = 1 << 22
"""Weights (16 MB in float32) drawn in one go: one product a block for many draws."""
MOST = 32


class Draws:
    """Draw number k of a Gaussian as parameters for `run_with`: a function of k and the seed alone.

    So a training run that is stopped and taken up again sees the same draws, whatever was drawn before. The decompositions are
    those of the Gaussian, in float64; the products are in the network's own precision, which halves what a draw costs.
    """

    def __init__(self, gaussian: Gaussian, network: nn.Module, seed: int) -> None:
        self.seed = seed
        self.blocks = find_blocks(network, named(gaussian.mean))
        self.like = next(network.parameters())
        self.mean = {name: mean.to(self.like) for name, mean in gaussian.mean.items()}
        self.precision = gaussian.precision
        self.spreads: dict[str, Spread] = {}
        self.chunk = max(1, min(MOST, DRAWS_AT_ONCE // gaussian.size))
        self.number = -1
        self.held: dict[str, Tensor] = {}

    def only(self, parameters: set[str]) -> None:
        """Draw no more than the blocks that these parameters belong to: the others stay at their means."""
        kept = {n for n, block in self.blocks.items() if not parameters.isdisjoint(block.parameters.values())}
        self.mean = {name: mean for name, mean in self.mean.items() if name in kept}
        self.number = -1

    def at(self, step: int) -> dict[str, Tensor]:
        number, place = divmod(step, self.chunk)
        if number != self.number:
            dice = torch.Generator().manual_seed((self.seed + number * 0x9E3779B97F4A7C15) % 2**63)
            draws = {name: self._spread(name).draw(self.chunk, dice) for name in self.mean}
            self.held = {n: drawn.to(self.like) for n, drawn in write_blocks(self.blocks, draws).items()}
            self.number = number
        return {name: values[place] for name, values in self.held.items()}

    def _spread(self, name: str) -> Spread:
        """Made when it is first asked for: a block that is never drawn need not be decomposed."""
        if name not in self.spreads:
            self.spreads[name] = Spread.of(self.mean[name], self.precision[name])
        return self.spreads[name]
