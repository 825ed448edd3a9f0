"""Columns run one after the other: each layer with laterals is the mean over the columns that lead into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, run_with, write_blocks
from posterity.blocks.base import version_of
from posterity.errors import LateralMismatch
from posterity.gaussian import Gaussian
from posterity.gaussian.spread import Spread
from posterity.progressive.column import Column, is_frozen
from posterity.progressive.memory import Given, Inputs, Memory, unchanged

Norms = nn.modules.batchnorm._BatchNorm


class Network(nn.Module):
    """The network of the last of some columns: s_l = mean over t' ≤ t of φ_l^(t',t)(a_{l-1}^(t')) at lateral layers.

    The columns `past` come first and are no part of this module: they run without gradients and in evaluation mode, with
    weights drawn for every batch in training (`draws`), at their own weights otherwise. Names are the same in every
    such network: "columns.2.conv1" is a layer of column 2, "laterals.2.0.1" leads from column 0 into it at lateral 1.
    After `remember` its inputs are numbers of examples.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        paths: tuple[str, ...],
        *,
        past: int = 0,
        draws: Draws | None = None,
        backbone: nn.Module | None = None,
        statistics_fixed: bool = False,
    ) -> None:
        super().__init__()
        self.paths, self.draws, self.statistics_fixed = paths, draws, statistics_fixed
        self.narrowed = False
        self.fixed_draw: int | None = None
        """The draw to stay at, in evaluation too; without one, training takes the next for every batch."""
        self.columns = nn.ModuleDict({str(past + j): c.module for j, c in enumerate(columns[past:])})
        self.laterals = nn.ModuleDict({str(past + j): c.laterals for j, c in enumerate(columns[past:])})
        # In tuples, which hide them from the module's parameters: they are constants here.
        self.backbone = () if backbone is None else (backbone.eval(),)
        # Without laterals nothing of them arrives here.
        self.past = (PastColumns(columns[:past], paths).eval(),) if past and paths else ()
        self.memory: Memory | None = None
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=bool(past and draws))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        number = self._next_draw()
        if self.memory is not None:
            (which,) = args
            x, seen = self.memory.recall(which, number)
            return _run(self, seen, (x,), {})
        args, kwargs = self._behind_the_backbone(args, kwargs)
        return _run(self, self._earlier(number, args, kwargs), args, kwargs)

    def remember(self, parts: Sequence[Tensor], memory_limit: int) -> bool:
        """From now on inputs are numbers of examples, counted through all parts, and what earlier columns hand on for them is
        kept, in `memory_limit` bytes.

        With draws, a few are made and taken in turn, batch by batch. Whether it was worth while and there was memory: if not,
        nothing has changed.
        """
        self.memory = None
        if self.past or self.backbone:
            memory = Memory(
                parts, lambda x: self._behind_the_backbone((x,), {})[0][0], lambda n, x: self._earlier(n, (x,), {})
            )
            self.memory = memory if memory.fits(memory_limit, drawn=self._draws) else None
        return self.memory is not None

    def forget(self) -> None:
        """Forget what earlier columns handed on: inputs are plain inputs again."""
        self.memory = None

    @property
    def _draws(self) -> bool:
        return bool(self.past) and self.draws is not None

    def _next_draw(self) -> int | None:
        if not self._draws or (self.fixed_draw is None and not self.training):
            return None
        if self.fixed_draw is not None:
            return self.fixed_draw
        assert isinstance(self.step, Tensor)
        # Kept with the weights, so that a training that is resumed goes on with the same draws.
        number = int(self.step)
        self.step += 1
        return number

    @torch.no_grad()
    def _behind_the_backbone(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return ((self.backbone[0](*args, **kwargs),), {}) if self.backbone else (args, kwargs)

    @torch.no_grad()
    def _earlier(self, number: int | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Inputs]:
        """What the columns before this one hand on, at a draw of their weights or at the weights that they have."""
        if not self.past:
            return []
        if number is None or self.draws is None:
            return self.past[0](*args, **kwargs)
        if not self.narrowed:
            self.draws.only(_heard(self.past[0], args, kwargs))
            self.narrowed = True
        return run_with(self.past[0], self.draws.at(number), args, kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Network:
        """To another device or precision, constants too."""
        for constant in (*self.backbone, *self.past):
            constant._apply(*args, **kwargs)
        return super()._apply(*args, **kwargs)

    def train(self, mode: bool = True) -> Network:
        """Frozen modules, and statistics where they are fixed, never leave evaluation mode."""
        super().train(mode)
        for module in self.modules():
            if is_frozen(module) or (self.statistics_fixed and isinstance(module, Norms)):
                module.eval()
        return self


class PastColumns(Network):
    """Columns that only hand on what their lateral layers were given, and run no further than the last of these."""

    last: int | None = None
    """How many inputs a column hands on, where that is known: if each lateral layer was called once in the first run."""

    def forward(self, *args: Any, **kwargs: Any) -> list[Inputs]:
        seen: list[Inputs] = []
        _run(self, seen, args, kwargs, self.last)
        if all(len(calls) == 1 for inputs in seen for calls in inputs.values()):
            self.last = len(self.paths)
        return seen


class _StopForward(BaseException):
    """Stops a column's forward pass: the layers above are of no use to other columns."""


def _heard(past: PastColumns, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> set[str]:
    """The parameters of earlier columns that reach the input of some lateral layer: a draw of any other would go unseen.

    Heads never do, nor does what lies behind the last lateral layer, in a ResNet its largest convolutions. A Kronecker draw of a
    large layer costs more than its forward, so it is worth a look at two examples, once.
    """

    def few(x: Any) -> Any:
        return x[:2] if isinstance(x, Tensor) and x.ndim else x

    def handed_on() -> list[Tensor]:
        seen = past(*map(few, args), **{k: few(v) for k, v in kwargs.items()})
        return [a for inputs in seen for calls in inputs.values() for a, _ in calls]

    return influential(past, handed_on)


def influential(network: nn.Module, run: Callable[[], Sequence[Tensor]]) -> set[str]:
    """The parameters of a network that what a run gives depends on."""
    own = {name: p for name, p in network.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        given = [a.sum() for a in run() if a.requires_grad]
        if not given:
            return set()
        found = torch.autograd.grad(torch.stack(given).sum(), list(own.values()), allow_unused=True)
    return {name for name, gradient in zip(own, found, strict=True) if gradient is not None}


def _run(
    network: Network, seen: list[Inputs], args: tuple[Any, ...], kwargs: Mapping[str, Any], last: int | None = None
) -> Any:
    """The output of the last column; `seen` grows by what each one's lateral layers were given.

    With `last`, columns stop when that many inputs were given, in front of the layer that the last of them is for.
    """
    output = None
    for name, module in network.columns.items():
        laterals = network.laterals[name]
        given: Inputs = {path: [] for path in network.paths}
        handles = []
        try:
            # For this call alone, and so behind every other hook: whoever watches a layer sees its own output, not the mean.
            for k, path in enumerate(network.paths):
                layer = module.get_submodule(path)
                incoming = [list(sources.children())[k] for sources in laterals.children()]
                meet = partial(_meet, path, incoming, given[path], [inputs[path] for inputs in seen])
                handles.append(layer.register_forward_pre_hook(partial(_note, path, given, last), with_kwargs=True))
                handles.append(layer.register_forward_hook(meet))
            output = module(*args, **kwargs)
        except _StopForward:
            pass
        finally:
            for handle in handles:
                handle.remove()
        seen.append(given)
    return output


def _note(path: str, given: Inputs, last: int | None, layer: nn.Module, args: Any, kwargs: Any) -> None:
    (a,) = args or kwargs.values()
    given[path].append((a, version_of(a)))
    if last is not None and sum(map(len, given.values())) == last:
        raise _StopForward


def _meet(
    path: str,
    incoming: Sequence[nn.Module],
    given: list[Given],
    theirs: Sequence[list[Given]],
    layer: nn.Module,
    args: Any,
    out: Tensor,
) -> Tensor | None:
    """The mean of a layer's own output and those of its laterals, on what the earlier columns' layers were given."""
    call = len(given) - 1
    total = out
    for i, (lateral, inputs) in enumerate(zip(incoming, theirs, strict=True)):
        if call >= len(inputs):
            raise LateralMismatch(
                f'layer "{path}" is called {call + 1} times in this column and {len(inputs)} times in column {i}: laterals '
                "need one call for one. Leave it out of laterals=..."
            )
        arriving = lateral(unchanged(inputs[call], path, i))
        if arriving.shape != out.shape:
            raise LateralMismatch(
                f'layer "{path}" gives {tuple(out.shape)} in this column and {tuple(arriving.shape)} from column {i}: '
                "laterals need one shape. Leave it out of laterals=..."
            )
        total = total + arriving
    return total / (1 + len(incoming)) if incoming else None


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
