"""Weights drawn again for every example, at about the price of a forward pass.

A pass over n examples with n independent draws of all weights is what an estimate of a Gibbs risk wants. Layers are reached
where torch computes them: a linear layer that sees one row an example never has its weights drawn at all, since
`W a ~ N(Ŵa, ·)` can be drawn itself (local reparametrisation, exact in distribution). Kernels of convolutions are drawn,
one per example, and applied as one grouped convolution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posterity.blocks import Block, run_with, write_blocks
from posterity.blocks.base import with_ones
from posterity.data.batches import Batch
from posterity.errors import HiddenUse
from posterity.gaussian.spread import Spread

CONVOLUTIONS = {torch.conv1d, torch.conv2d, torch.conv3d}
POOLINGS = {torch.max_pool2d, F.max_pool2d}


class DrawnNetwork:
    """A network whose weights are distributions: `outputs(batch)` draws them once for every example.

    `drawable` tells whether every block can be reached so; attention, embeddings and norm layers cannot, nor can
    layers that fold other dimensions into the batch, nor weights that are used in any other way than by their own layer's
    call (a weight read by hand, a cosine head). Those networks are drawn as a whole instead, where a weight is what was drawn
    wherever it is used.
    """

    def __init__(self, model: nn.Module, blocks: Mapping[str, Block], spreads: Mapping[str, Spread]) -> None:
        self.model, self.blocks, self.spreads = model, blocks, spreads
        self.explicit: frozenset[str] = frozenset()

    def look(self, batch: Batch) -> bool:
        """One plain pass that finds out how each block is called; False if some block cannot be drawn per example."""
        calls = _Calls()
        weights = self._weights()
        with torch.no_grad(), _CallWatch(calls, self._keys(weights), self._owned(weights)):
            _run(self.model, weights, batch)
        self.explicit = frozenset(
            name for name, count in calls.count.items() if count > 1 or name in calls.with_positions
        )
        reached = set(calls.count) == set(self.blocks)
        return reached and not calls.odd and all(n == batch.count for n in calls.examples)

    def outputs(self, batch: Batch, generator: torch.Generator | None = None, repeats: int = 1) -> Tensor:
        """The network's outputs, every example `repeats` times in a row, each time through weights of its own.

        Gradients flow into the spreads. Layers that see the data itself look at an example once for all its repeats.
        """
        weights = self._weights()
        batch = repeated(batch, repeats)
        data = {id(x) for x in (*batch.positional, *batch.named.values())}
        owned = self._owned(weights)
        with _CallDraws(self._keys(weights), owned, self.spreads, self.blocks, self.explicit, generator, data, repeats):
            return _run(self.model, weights, batch)

    def whole(self, batch: Batch, generator: torch.Generator | None = None, repeats: int = 1) -> Tensor:
        """The same with all examples through one draw of the weights, which any kind of block allows."""
        batch = repeated(batch, repeats)
        drawn = {name: spread.draw(1, generator)[0] for name, spread in self.spreads.items()}
        return _run(self.model, write_blocks(self.blocks, drawn), batch)

    def _weights(self) -> dict[str, Tensor]:
        return write_blocks(self.blocks, {name: spread.mean for name, spread in self.spreads.items()})

    def _owned(self, weights: Mapping[str, Tensor]) -> dict[int, str]:
        """Every tensor that is drawn, by identity: the name of its block."""
        return {id(weights[full]): name for name, block in self.blocks.items() for full in block.parameters.values()}

    def _keys(self, weights: Mapping[str, Tensor]) -> dict[int, str]:
        return {id(weights[block.parameters["weight"]]): name for name, block in self.blocks.items()}


def _run(model: nn.Module, weights: dict[str, Tensor], batch: Batch) -> Tensor:
    outputs: Tensor = run_with(_BatchNetwork(model, batch), {f"model.{name}": value for name, value in weights.items()})
    return outputs


class _BatchNetwork(nn.Module):
    """A network on one batch: what mapping of inputs it takes is the batch's to know."""

    def __init__(self, model: nn.Module, batch: Batch) -> None:
        super().__init__()
        self.model, self.batch = model, batch

    def forward(self) -> Tensor:
        return self.batch.outputs(self.model)


class _Calls:
    """How the blocks of a network are called."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.with_positions: set[str] = set()
        self.examples: set[int] = set()
        self.odd = False


METADATA = {
    getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout")
} | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.is_complex, Tensor.stride}
"""What may be asked of a weight without using its numbers."""


def _used_elsewhere(func: Any, args: Any, kwargs: Any, keys: Mapping[int, str], owned: Mapping[int, str]) -> str | None:
    """The block of which a tensor goes into something that is not the call of its own layer."""
    if func in METADATA:
        return None
    given = _arguments(func, args, kwargs)
    mine = None if given is None else keys.get(id(given[1]))
    if given is not None and mine is not None:
        x, _, bias = given
        own_bias = bias is not None and owned.get(id(bias)) == mine
        has_bias = sum(name == mine for name in owned.values()) > 1
        if has_bias != own_bias or (bias is not None and not own_bias and id(bias) in owned):
            return mine
        return owned.get(id(x))
    for x in _tensors((args, kwargs)):
        if id(x) in owned:
            return owned[id(x)]
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


class _CallWatch(TorchFunctionMode):
    def __init__(self, calls: _Calls, keys: Mapping[int, str], owned: Mapping[int, str]) -> None:
        super().__init__()
        self.calls, self.keys, self.owned = calls, keys, owned

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _used_elsewhere(func, args, kwargs or {}, self.keys, self.owned) is not None:
            self.calls.odd = True
        given = _arguments(func, args, kwargs or {})
        if given is not None and id(given[1]) in self.keys:
            name, x = self.keys[id(given[1])], given[0]
            self.calls.count[name] += 1
            self.calls.examples.add(len(x))
            if func is F.linear and x.ndim > 2:
                self.calls.with_positions.add(name)
            if func in CONVOLUTIONS and x.ndim != given[1].ndim:
                self.calls.odd = True
        return func(*args, **(kwargs or {}))


class _CallDraws(TorchFunctionMode):
    def __init__(
        self,
        keys: Mapping[int, str],
        owned: Mapping[int, str],
        spreads: Mapping[str, Spread],
        blocks: Mapping[str, Block],
        explicit: frozenset[str],
        generator: torch.Generator | None,
        data: set[int],
        repeats: int,
    ) -> None:
        super().__init__()
        self.keys, self.owned, self.spreads, self.blocks, self.explicit = keys, owned, spreads, blocks, explicit
        self.generator, self.data, self.repeats = generator, data, repeats
        self.drawn: dict[str, dict[str, Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (
            func in POOLINGS
            and not torch.is_grad_enabled()
            and _halves(*args, **{"x" if key == "input" else key: value for key, value in kwargs.items()})
        ):
            return _halved(args[0] if args else kwargs["input"])
        if (hidden := _used_elsewhere(func, args, kwargs, self.keys, self.owned)) is not None:
            raise HiddenUse(
                f'the network uses a weight of block "{hidden}" by {getattr(func, "__name__", func)} for some examples and not '
                "for others: its draws would not be what the network computes with. Use the weight by its layer's call alone."
            )
        given = _arguments(func, args, kwargs)
        name = None if given is None else self.keys.get(id(given[1]))
        if given is None or name is None:
            return func(*args, **kwargs)
        x, weight, bias = given
        repeats = self.repeats if id(x) in self.data else 1
        if func is F.linear and name not in self.explicit:
            x = x[::repeats]
            rows = with_ones(x) if self.blocks[name].layer.bias else x
            mean = F.linear(x, weight, bias)
            mean = mean if repeats == 1 else mean.repeat_interleave(repeats, 0)
            return mean + self.spreads[name].noise(rows, self.generator, repeats)
        own = self._weights(name, len(x))
        if self.blocks[name].layer.bias:
            bias = own["bias"]
        elif bias is not None:
            bias = bias.expand(len(x), -1)
        if func is F.linear:
            return _linear(x, own["weight"], bias)
        return _convolve(func, x, own["weight"], bias, _options(args, kwargs), repeats)

    def _weights(self, name: str, n: int) -> dict[str, Tensor]:
        """Drawn once a pass: a layer that is called twice is the same layer."""
        if name not in self.drawn:
            self.drawn[name] = self.blocks[name].layer.write(self.spreads[name].draw(n, self.generator))
        return self.drawn[name]


def _arguments(func: Any, args: Any, kwargs: Any) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """(input, weight, bias) of a layer's call."""
    if func is not F.linear and func not in CONVOLUTIONS:
        return None
    bound = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    return bound["input"], bound["weight"], bound.get("bias")


def _options(args: Any, kwargs: Any) -> dict[str, Any]:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    bound = dict(zip(names, args, strict=False)) | kwargs
    return {key: value for key, value in bound.items() if key not in ("input", "weight", "bias")}


def _linear(x: Tensor, weight: Float[Tensor, "n out inp"], bias: Float[Tensor, "n out"] | None) -> Tensor:
    rows = x.reshape(len(x), -1, x.shape[-1]) @ weight.mT
    rows = rows if bias is None else rows + bias[:, None, :]
    return rows.view(*x.shape[:-1], -1)


def _convolve(
    func: Any, x: Tensor, weight: Tensor, bias: Tensor | None, options: dict[str, Any], repeats: int
) -> Tensor:
    """A kernel per example: the examples become groups of one convolution."""
    n = len(x)
    groups = options.pop("groups", 1)
    # An example's repeats are further outputs of its group, where the group is one.
    repeats = repeats if groups == 1 else 1
    if repeats == 1 and groups == 1 and _slides(func, weight, options):
        return _sliding(x, weight, bias, options.get("padding", 0))
    together = func(
        x[::repeats].reshape(1, -1, *x.shape[2:]),
        weight.flatten(0, 1),
        None if bias is None else bias.reshape(-1),
        groups=n // repeats * groups,
        **options,
    )
    result: Tensor = together.view(n, -1, *together.shape[2:])
    return result


def _slides(func: Any, weight: Tensor, options: dict[str, Any]) -> bool:
    """Whether products of pixel rows are the faster way: with few channels a grouped convolution is."""
    plain = all(options.get(name, 1) in (1, (1, 1), [1, 1]) for name in ("stride", "dilation"))
    wide = weight.ndim == 5 and weight.shape[2] * weight.shape[4] >= 16
    return func is torch.conv2d and plain and wide and not isinstance(options.get("padding", 0), str)


def _sliding(
    x: Float[Tensor, "n channels height width"],
    weight: Float[Tensor, "n out channels kh kw"],
    bias: Float[Tensor, "n out"] | None,
    padding: int | tuple[int, int],
) -> Float[Tensor, "n out oh ow"]:
    """A kernel per example by products: patches are written out along rows only, and slide down as views."""
    high, across = (padding, padding) if isinstance(padding, int) else padding
    if high or across:
        x = F.pad(x, (across, across, high, high))
    n, out, channels, kh, kw = weight.shape
    height, width = x.shape[2] - kh + 1, x.shape[3] - kw + 1
    rows = x.unfold(3, kw, 1).permute(0, 1, 4, 2, 3).reshape(n, channels * kw, -1)
    kernels = weight.permute(3, 0, 1, 2, 4).reshape(kh, n, out, channels * kw)
    pieces = [rows[:, :, k * width : (k + height) * width] for k in range(kh)]
    start = x.new_zeros(1, 1, 1) if bias is None else bias[:, :, None]
    total = torch.baddbmm(start, kernels[0], pieces[0])
    for kernel, piece in zip(kernels[1:], pieces[1:], strict=True):
        total = torch.baddbmm(total, kernel, piece)
    return total.view(n, out, height, width)


def _halves(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> bool:
    two, zero, one = (2, [2, 2], (2, 2)), (0, [0, 0], (0, 0)), (1, [1, 1], (1, 1))
    steps = kernel_size in two and (stride in two or not stride)
    return steps and padding in zero and dilation in one and not ceil_mode and not return_indices and x.ndim == 4


def _halved(x: Tensor) -> Tensor:
    """A 2×2 maximum by slices: the same values as torch's pooling, in a third of its time on a processor.

    For LeNet-5 pooling is half of a plain forward pass, and a pass with draws has no time for that.
    """
    rows, columns = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    x = torch.maximum(x[..., 0:rows:2, :columns], x[..., 1:rows:2, :columns])
    return torch.maximum(x[..., ::2], x[..., 1::2])


def repeated(batch: Batch, times: int) -> Batch:
    """Every example this many times in a row."""

    def again(x: Any) -> Any:
        return x.repeat_interleave(times, 0) if isinstance(x, Tensor) else x

    if times == 1:
        return batch
    named = {key: again(value) for key, value in batch.named.items()}
    return Batch(tuple(map(again, batch.positional)), named, again(batch.targets), batch.index)
