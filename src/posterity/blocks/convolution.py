"""Convolutions in one, two and three dimensions as matrices over patches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks.base import CHUNK, Layer, Moment, batch_lost, with_ones
from posterity.blocks.conv_overlap import BandMoment, Window
from posterity.blocks.conv_shifts import FEWEST, ShiftMoment
from posterity.blocks.linear import RowMoment, joined, split

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class ConvolutionLayer(Layer):
    """W = [weight, flattened to (in/groups · kernel) | bias]. Output pixels are positions.

    With groups, (pixel, group) is a position: its input row is the group's patch, its gradient row is zero outside
    the group. So the output factor is block-diagonal and the input factor the average over groups.
    """

    channels: int
    groups: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    """As torch.nn.functional.pad takes it: last dimension first, before and after."""
    mode: str

    @classmethod
    def of(cls, module: Conv, bias: bool) -> ConvolutionLayer:
        dims = len(module.kernel_size)
        match module.padding:
            case "valid":
                padding = [0] * (2 * dims)
            case "same":
                spread = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
                padding = [side for total in reversed(spread) for side in (total // 2, total - total // 2)]
            case _:
                assert not isinstance(module.padding, str)
                padding = [p for p in module.padding[::-1] for _ in range(2)]
        channels = module.in_channels // module.groups
        return cls(
            module.out_channels,
            channels * math.prod(module.kernel_size) + bias,
            bias,
            channels,
            module.groups,
            tuple(module.kernel_size),
            tuple(module.stride),
            tuple(module.dilation),
            tuple(padding),
            "constant" if module.padding_mode == "zeros" else module.padding_mode,
        )

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        return joined(parameters["weight"], parameters["bias"] if self.bias else None)

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        parts = split(matrix, self.bias)
        return parts | {"weight": parts["weight"].unflatten(-1, (self.channels, *self.kernel))}

    def by_example(self, x: Tensor, examples: int, name: str) -> Tensor:
        """[n, channels, ...], or [n, folded, channels, ...]: a second dimension as long as the batch is channels still."""
        if x.shape[0] == examples:
            return x
        if x.shape[0] % examples:
            raise batch_lost(x, examples, name)
        return x.unflatten(0, (examples, -1))

    def flat_batch(self, x: Tensor) -> Tensor:
        """Folded or not, as torch's convolutions take it."""
        return x.flatten(0, x.ndim - 2 - len(self.kernel))

    def positions(self, a: Tensor, s: Tensor) -> int:
        return s[0].numel() // self.out * self.groups

    def padded(self, a: Tensor) -> Tensor:
        return F.pad(a, self.padding, mode=self.mode) if any(self.padding) else a

    def by_group(self, x: Tensor) -> Tensor:
        """Groups are small convolutions side by side: (example, group) takes the place of the example."""
        return x if self.groups == 1 else x.unflatten(1, (self.groups, -1)).flatten(0, 1)

    def windows(self, a: Tensor, first: int = 0) -> Tensor:
        """The padded input with dimensions from `first` on replaced by (output positions) and (kernel) behind all: a view."""
        for dim in range(first, len(self.kernel)):
            k, step, d = self.kernel[dim], self.stride[dim], self.dilation[dim]
            a = a.unfold(2 + dim, d * (k - 1) + 1, step)[..., ::d]
        return a

    def patches(self, a: Tensor) -> Iterator[Float[Tensor, "rows features"]]:
        """Patches of all examples as rows, a bounded piece of the batch at a time."""
        a = self.by_group(self.padded(self.flat_batch(a)))
        dims = len(self.kernel)
        pixels = math.prod(self.output_size(a.shape[2:]))
        step = max(1, CHUNK // (pixels * self.channels * math.prod(self.kernel)))
        for piece in a.split(step):
            view = self.windows(piece).movedim(1, 1 + dims)
            yield view.reshape(len(piece) * pixels, -1)

    def output_size(self, padded: tuple[int, ...]) -> tuple[int, ...]:
        """Output pixels along each dimension, from the padded input's."""
        sizes = zip(padded, self.kernel, self.stride, self.dilation, strict=True)
        return tuple((size - d * (k - 1) - 1) // step + 1 for size, k, step, d in sizes)

    def rows(self, a: Tensor, s: Tensor) -> tuple[Float[Tensor, "n t inp"], Float[Tensor, "n t out"]]:
        flat = self.flat_batch(a)
        rows = torch.cat(list(self.patches(flat))).unflatten(0, (len(flat), self.groups, -1)).flatten(1, 2)
        rows = rows.reshape(len(a), -1, rows.shape[-1])
        return with_ones(rows) if self.bias else rows, self.gradient_rows(a, s)

    def gradient_rows(self, a: Tensor, s: Tensor) -> Float[Tensor, "n t out"]:
        s = self.flat_batch(s).flatten(2).mT
        if self.groups > 1:
            parts = s.unflatten(-1, (self.groups, -1)).transpose(1, 2)
            eye = torch.eye(self.groups, dtype=s.dtype, device=s.device)
            s = torch.einsum("ngto,gh->ngtho", parts, eye).flatten(3).flatten(1, 2)
        return s.reshape(len(a), -1, s.shape[-1])

    def input_moment(self, shape: torch.Size) -> Moment:
        """Σ p pᵀ over patches p, the expensive part of every Kronecker estimator: patches, which repeat each pixel k² times, are
        written out only when nothing cheaper fits, a slice of the batch at a time.
        """
        window = self.window(tuple(shape[-len(self.kernel) :]))
        if self.mode == "constant" and window.rows_pay:
            return BandMoment(window, self.pictures)
        return (
            ShiftMoment(self.channels, self.bias, self.pictures) if self.slides else RowMoment(self.bias, self.patches)
        )

    def pictures(self, a: Tensor) -> tuple[Tensor]:
        """The input as one batch of pictures, without the padding around them."""
        return (self.by_group(self.flat_batch(a)),)

    @property
    def slides(self) -> bool:
        """Whether it is the usual 3×3 kernel that leaves a picture's size as it is, with channels enough."""
        usual = ((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "constant")
        return (self.kernel, self.stride, self.dilation, self.padding, self.mode) == usual and self.channels >= FEWEST

    def window(self, size: tuple[int, ...]) -> Window:
        before, after = tuple(reversed(self.padding[0::2])), tuple(reversed(self.padding[1::2]))
        padded = tuple(x + p + q for x, p, q in zip(size, before, after, strict=True))
        output = self.output_size(padded)
        return Window(self.channels, size, self.kernel, self.stride, self.dilation, before, output, self.bias)

    def output_moment(self) -> Moment:
        return _Pixels(self)

    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        """Patches are written out along all dimensions but the first; along that one a view slides (stride 1)."""
        n = len(a)
        a, s = self.flat_batch(a), self.flat_batch(s)
        a, flat = self.by_group(self.padded(a)), self.by_group(s).flatten(2)
        method, first = (self._sliding, 1) if self.stride[0] == 1 else (self._written_out, 0)
        step = max(1, CHUNK // (flat.shape[-1] * self.channels * math.prod(self.kernel[first:])))
        gradient = torch.cat([method(x, y) for x, y in zip(a.split(step), flat.split(step), strict=True)])
        gradient = gradient.unflatten(0, (len(s), self.groups)).flatten(1, 2)
        if self.bias:
            gradient = torch.cat((gradient, s.flatten(2).sum(2)[..., None]), 2)
        return gradient if len(gradient) == n else gradient.unflatten(0, (n, -1)).sum(1)

    def labels_joined(self, gradients: Sequence[Tensor]) -> Tensor | None:
        return torch.cat(list(gradients), -1 - len(self.kernel)) if self.groups == 1 else None

    def _written_out(self, a: Tensor, s: Float[Tensor, "n out t"]) -> Float[Tensor, "n out features"]:
        return s @ self.windows(a).movedim(1, 1 + len(self.kernel)).reshape(len(a), s.shape[-1], -1)

    def _sliding(self, a: Tensor, s: Float[Tensor, "n out t"]) -> Float[Tensor, "n out features"]:
        dims, k, d = len(self.kernel), self.kernel[0], self.dilation[0]
        view = self.windows(a, first=1)  # n, channels, rows, inner positions..., inner kernel...
        inner = math.prod(self.kernel[1:])
        across = math.prod(view.shape[3 : 2 + dims])
        order = (0, 1, *range(2 + dims, view.ndim), *range(2, 2 + dims))
        flat = view.permute(order).reshape(len(a), self.channels * inner, -1)
        span = s.shape[-1]
        parts = [s @ flat[:, :, i * d * across : i * d * across + span].mT for i in range(k)]
        stacked = torch.stack(parts, 2).unflatten(3, (self.channels, inner))
        return stacked.transpose(2, 3).flatten(2)


class _Pixels(RowMoment):
    """Σ s sᵀ over output pixels; nothing between groups."""

    def __init__(self, layer: ConvolutionLayer) -> None:
        super().__init__(bias=False, pieces=lambda s: (layer.flat_batch(s).transpose(0, 1).reshape(layer.out, -1).T,))
        self.layer = layer

    def matrix(self) -> Float[Tensor, "out out"]:
        total, groups = super().matrix(), self.layer.groups
        if groups == 1:
            return total
        side = self.layer.out // groups
        return total * torch.block_diag(*[total.new_ones(side, side)] * groups)
