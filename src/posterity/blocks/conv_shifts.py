"""Σ p pᵀ over 3×3 patches from correlations of the picture with itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.blocks.base import CHUNK, MomentOfRows
from posterity.blocks.linear import add_product, sum_dtype, symmetrised

REACH = 2
"""The largest displacement between two pixels of a 3×3 patch."""
FEWEST = 16
"""Channels from which thirteen small products cost less than one large one."""
OFFSETS = (-1, 0, 1)
HALF = tuple((r, c) for r in range(REACH + 1) for c in range(-REACH, REACH + 1) if (r, c) >= (0, 0))
"""Displacements up to transposition."""


class ShiftMoment(MomentOfRows):
    """For kernels of 3×3 with a border of one zero, stride 1 and no dilation. O(13 · pixels · channels²).

    Two kernel offsets u, v meet pixels y and y + d with d = v − u. Of the 81 blocks of Σ p pᵀ only those of 25 displacements d
    differ, 13 up to transposition, but for the border: where u and v are equal and not zero along a dimension, one row (or
    column) of pixels at its end never meets them. So thirteen correlations over all pixels, and a few over the border, are
    summed, and the moment is put together from them once, at the end: a quarter of the multiplications, and no patch written out.
    """

    def __init__(self, channels: int, bias: bool, pieces: Callable[[Tensor], Iterable[Tensor]]) -> None:
        super().__init__(pieces)
        self.channels, self.bias = channels, bias
        self.sums: list[Tensor] = []
        """By displacement: over the whole picture, its first and last row, its first and last column, its corners."""

    def _add(self, a: Float[Tensor, "n channels height width"]) -> None:
        if not self.sums:
            self._start(a)
        self.rows += len(a) * a[0, 0].numel()
        if self.bias:
            self.pixels += a.sum(0)
        for piece in a.split(max(1, CHUNK // a[0].numel())):
            self._sum(piece)

    def _sum(self, a: Float[Tensor, "n channels height width"]) -> None:
        whole, rows, columns, corners = self.sums
        n, c, height, width = a.shape
        # Two zeros behind every row and two rows of them behind every picture: a displacement is then a step along one list of
        # pixels, and whatever leaves the picture meets a zero.
        pitch = width + REACH
        spread = a.new_zeros(n, height + REACH, pitch, c)
        spread[:, :height, :width] = a.permute(0, 2, 3, 1)
        flat = spread.view(-1, c)
        for total, (r, s) in zip(whole, HALF, strict=True):
            step = r * pitch + s
            add_product(total, flat[: len(flat) - step], flat[step:])
        inside = spread[:, :height, :width]
        for end in (0, 1):
            row, column = inside[:, -end], inside[:, :, -end]
            for d in range(REACH + 1):
                for total, line in ((rows[end, d], row), (columns[end, d], column)):
                    if d < line.shape[1]:
                        add_product(total, line[:, : line.shape[1] - d].reshape(-1, c), line[:, d:].reshape(-1, c))
            for other in (0, 1):
                corner = inside[:, -end, -other]
                add_product(corners[end, other], corner, corner)

    def _start(self, a: Tensor) -> None:
        c = self.channels
        dtype = sum_dtype(9 * c + self.bias, a.dtype)
        shapes = ((len(HALF),), (2, REACH + 1), (2, REACH + 1), (2, 2))
        self.sums = [torch.zeros(*shape, c, c, dtype=dtype, device=a.device) for shape in shapes]
        self.pixels = torch.zeros(a.shape[1:], dtype=torch.float64, device=a.device)

    def matrix(self) -> Float[Tensor, "inp inp"]:
        c, dtype = self.channels, self.sums[0].dtype
        side = 9 * c
        places = [(r, s) for r in OFFSETS for s in OFFSETS]
        # Block by block in one piece, and then once into the order of a kernel's weights: channel before offset.
        blocks = self.sums[0].new_empty(9, c, 9, c)
        for i, u in enumerate(places):
            for j, v in enumerate(places[: i + 1]):
                met = self._met(u, v)
                blocks[i, :, j] = symmetrised(met) if i == j else met
                if i != j:
                    blocks[j, :, i] = met.T
        whole = blocks.new_empty(side + self.bias, side + self.bias)
        whole[:side, :side].unflatten(1, (c, 9)).unflatten(0, (c, 9)).copy_(blocks.permute(1, 0, 3, 2))
        if self.bias:
            column = torch.stack([self._seen(u) for u in places], 1).flatten().to(dtype)
            whole[side, :side], whole[:side, side], whole[side, side] = column, column, float(self.rows)
        return whole

    def _met(self, u: tuple[int, int], v: tuple[int, int]) -> Float[Tensor, "c c"]:
        """Σ over output pixels x of a(x + u) a(x + v)ᵀ."""
        _, rows, columns, corners = self.sums
        r, s = v[0] - u[0], v[1] - u[1]
        found = self._whole(r, s)
        # An offset of 1 never reads the first row, one of −1 never the last.
        row = None if r or not u[0] else int(u[0] < 0)
        column = None if s or not u[1] else int(u[1] < 0)
        if row is not None:
            found = found - _either_way(rows[row], s)
        if column is not None:
            found = found - _either_way(columns[column], r)
        if row is not None and column is not None:
            found = found + corners[row, column]
        return found

    def _whole(self, r: int, s: int) -> Float[Tensor, "c c"]:
        sums = self.sums[0]
        return sums[HALF.index((r, s))] if (r, s) in HALF else sums[HALF.index((-r, -s))].T

    def _seen(self, u: tuple[int, int]) -> Float[Tensor, " c"]:
        """Σ over output pixels x of a(x + u)."""
        (height, width), (r, s) = self.pixels.shape[1:], u
        return self.pixels[:, max(0, r) : height + min(0, r), max(0, s) : width + min(0, s)].sum((1, 2))


def _either_way(sums: Float[Tensor, "3 c c"], d: int) -> Float[Tensor, "c c"]:
    return sums[d] if d >= 0 else sums[-d].T
