"""Σ p pᵀ over overlapping patches without writing patches out: from products of rows of pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.blocks.base import MomentOfRows
from posterity.blocks.linear import symmetrised

BAND_LIMIT = 1 << 23
"""Entries of the band of row products beyond which it is not kept (96 MB with what waits for float64, for every layer)."""

FLUSH = 16
"""Batches summed in the network's precision before they are added to the float64 total."""


@dataclass(frozen=True)
class Window:
    """What of a convolution decides which pixels meet: sizes by spatial dimension, padding with zeros before each."""

    channels: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    output: tuple[int, ...]
    bias: bool

    @property
    def row(self) -> int:
        """Entries of one row of pixels: channels times all spatial dimensions but the first."""
        return self.channels * math.prod(self.size[1:])

    @property
    def rows_pay(self) -> bool:
        """Whether products of rows cost less than products of patches, and fit."""
        band = self.size[0] * self.kernel[0] * self.row**2
        patches = (self.channels * math.prod(self.kernel)) ** 2 * math.prod(self.output)
        return self.dilation[0] == 1 and band < patches and band <= BAND_LIMIT

    def pixels(self, dim: int) -> Tensor:
        """[kernel offset, output position] → pixel along one dimension; `size` stands for the padding around it."""
        offset = torch.arange(self.kernel[dim])[:, None] * self.dilation[dim] - self.before[dim]
        pixel = torch.arange(self.output[dim])[None, :] * self.stride[dim] + offset
        return torch.where((pixel < 0) | (pixel >= self.size[dim]), self.size[dim], pixel)

    def inner_pixels(self) -> Tensor:
        """The same for all dimensions but the first, flattened; the last index + 1 stands for padding."""
        total = math.prod(self.size[1:])
        index, padding = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.bool)
        for dim in range(1, len(self.size)):
            pixel = self.pixels(dim)
            out = pixel == self.size[dim]
            index = (index[:, None, :, None] * self.size[dim] + pixel[None, :, None, :]).flatten(2).flatten(0, 1)
            padding = (padding[:, None, :, None] | out[None, :, None, :]).flatten(2).flatten(0, 1)
        return torch.where(padding, total, index)


class BandMoment(MomentOfRows):
    """Sums of products of pixel rows less than a kernel apart, from which the patch moment is gathered once, at the end.

    Two kernel offsets u, v meet pixels x + u and x + v: every entry of Σ p pᵀ is a sum of products of two such pixels.
    O(rows · k · row²) a batch element against O(positions · (channels · k²)²) with patches: for LeNet-5's second
    convolution 0.5 against 2.3 million multiplications an image, and no copy of the input k² times its size.
    """

    def __init__(self, window: Window, pieces: Callable[[Tensor], Iterable[Tensor]]) -> None:
        super().__init__(pieces)
        self.window = window
        self.recent: Tensor | None = None
        self.waiting = 0

    def _add(self, a: Float[Tensor, "n channels rows ..."]) -> None:
        w = self.window
        height, k, row = w.size[0], w.kernel[0], w.row
        # [row, entries of the row, examples]: neighbouring rows are then neighbours in memory.
        flat = a.movedim(2, 0).movedim(1, -1).reshape(height * row, len(a))
        if self.recent is None:
            self.recent = a.new_zeros(height, row, k * row)
            self.total = torch.zeros_like(self.recent, dtype=torch.float64)
            self.pixel_sum = torch.zeros(height, row, dtype=torch.float64, device=a.device)
        for r in range(height):
            stop = min(height, r + k)
            own, near = flat[r * row : (r + 1) * row], flat[r * row : stop * row]
            self.recent[r, :, : len(near)].addmm_(own, near.T)
        self.pixel_sum += flat.sum(1).view(height, row)
        self.rows += len(a) * math.prod(w.output)
        self.waiting += 1
        if self.waiting == FLUSH:
            self._flush()

    def _flush(self) -> None:
        assert self.recent is not None
        self.total += self.recent
        self.recent.zero_()
        self.waiting = 0

    def matrix(self) -> Float[Tensor, "inp inp"]:
        self._flush()
        w = self.window
        channels, k, inner = w.channels, w.kernel[0], math.prod(w.size[1:])
        band = self.total.view(w.size[0], channels, inner, k, channels, inner)
        vertical, across = w.pixels(0), w.inner_pixels().to(self.total.device)
        offsets = len(across)
        features = channels * k * offsets
        result = torch.zeros(channels, k, offsets, channels, k, offsets, dtype=torch.float64, device=self.total.device)
        sums = torch.zeros(channels, k, offsets, dtype=torch.float64, device=self.total.device)
        for i in range(k):
            inside = vertical[i] < w.size[0]
            total = self.pixel_sum[vertical[i][inside]].sum(0).view(channels, inner)
            sums[:, i] = _padded(total)[:, across].sum(-1)
            for j in range(i, k):
                both = inside & (vertical[j] < w.size[0])
                products = band[vertical[i][both], :, :, j - i].sum(0)  # channels, inner, channels, inner
                products = _padded(_padded(products).movedim(1, -1)).movedim(-1, 1)
                # [offset, offset', position, channel, channel'], summed over positions.
                met = products[:, across[:, None], :, across[None, :]].sum(2)
                result[:, i, :, :, j, :] = met.permute(2, 0, 3, 1)
                result[:, j, :, :, i, :] = met.permute(3, 1, 2, 0)
        moment = symmetrised(result.reshape(features, features))
        if not w.bias:
            return moment
        column = sums.reshape(features, 1)
        corner = torch.full((1, 1), float(self.rows), dtype=torch.float64, device=moment.device)
        return torch.cat((torch.cat((moment, column), 1), torch.cat((column.T, corner), 1)))


def _padded(x: Tensor) -> Tensor:
    """One more entry along the last dimension: the zero that padding pixels point at."""
    return torch.nn.functional.pad(x, (0, 1))
