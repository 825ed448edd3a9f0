"""Weights of earlier columns, drawn once for every batch that a new column learns from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from posterity.algebra import DiagonalMatrix, Matrix, ScaledIdentity
from posterity.blocks import find_blocks, named, write_blocks
from posterity.errors import NotExact
from posterity.gaussian import Gaussian

DRAWS_AT_ONCE = 1 << 22
"""Weights (16 MB in float32) drawn in one go: one product a block for many draws."""
MOST = 32

Deviation = Callable[[int, torch.Generator], Tensor]
"""n draws of a centred normal."""


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
        self.deviations: dict[str, Deviation] = {}
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
            draws = {name: mean + self._deviation(name)(self.chunk, dice) for name, mean in self.mean.items()}
            self.held = {n: drawn.to(self.like) for n, drawn in write_blocks(self.blocks, draws).items()}
            self.number = number
        return {name: values[place] for name, values in self.held.items()}

    def _deviation(self, name: str) -> Deviation:
        """Made when it is first asked for: a block that is never drawn need not be decomposed."""
        if name not in self.deviations:
            self.deviations[name] = _deviation(self.precision[name], self.like)
        return self.deviations[name]


def _deviation(precision: Matrix, like: Tensor) -> Deviation:
    """n draws of the centred normal, in the precision of `like`: leftᵀ (Z/√values) right in the matrix's frame."""

    dtype, device = like.dtype, like.device  # as they are now: `like` may move

    def noise(n: int, dice: torch.Generator) -> Tensor:
        return torch.randn(n, *precision.shape, dtype=dtype, generator=dice).to(device)

    if isinstance(precision, ScaledIdentity | DiagonalMatrix):
        values = precision.scale if isinstance(precision, ScaledIdentity) else precision.values
        spread = values.double().rsqrt().to(like)
        return lambda n, dice: noise(n, dice) * spread
    try:
        frame = precision.frame()
    except NotExact:
        return lambda n, dice: precision.sample(n, generator=dice).to(device, dtype)
    left, right, root = frame.left.mT.to(like), frame.right.to(like), frame.values.rsqrt().to(like)
    return lambda n, dice: left @ (noise(n, dice) * root) @ right
