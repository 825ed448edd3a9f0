"""Columns run one after the other: each layer with laterals is the mean over the columns that lead into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from posterity.blocks import run_with
from posterity.blocks.capture import _version
from posterity.errors import ChangedInput, LateralMismatch
from posterity.progressive.column import Column, is_frozen
from posterity.progressive.draws import Draws

Given = tuple[Tensor, int]
"""An input, and how often it had been changed in place when its layer read it."""

Inputs = dict[str, list[Given]]
"""What a column's lateral layers were given, call by call."""

Norms = nn.modules.batchnorm._BatchNorm


class Network(nn.Module):
    """The network of the last of some columns: s_l = mean over t' ≤ t of φ_l^(t',t)(a_{l-1}^(t')) at lateral layers.

    The columns `past` come first and are no part of this module: they run without gradients and in evaluation mode, with
    weights drawn anew for every batch in training (`draws`), at their own weights otherwise. Names are the same in every
    such network: "columns.2.conv1" is a layer of column 2, "laterals.2.0.1" leads from column 0 into it at lateral 1.
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
        self.columns = nn.ModuleDict({str(past + j): c.module for j, c in enumerate(columns[past:])})
        self.laterals = nn.ModuleDict({str(past + j): c.laterals for j, c in enumerate(columns[past:])})
        # In tuples, which hide them from the module's parameters: they are constants here.
        self.backbone = () if backbone is None else (backbone.eval(),)
        self.past = (_Past(columns[:past], paths).eval(),) if past else ()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=bool(past and draws))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.backbone:
            with torch.no_grad():
                args, kwargs = (self.backbone[0](*args, **kwargs),), {}
        seen = self._earlier(args, kwargs)
        return _run(self, seen, args, kwargs)

    def _earlier(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Inputs]:
        if not self.past:
            return []
        with torch.no_grad():
            if self.training and self.draws is not None:
                assert isinstance(self.step, Tensor)
                if not self.narrowed:
                    self.draws.only(_influential(self.past[0], args, kwargs))
                    self.narrowed = True
                # Kept with the weights, so that a training that is resumed goes on with the same draws.
                weights = self.draws.at(int(self.step))
                self.step += 1
                return run_with(self.past[0], weights, args, kwargs)
            return self.past[0](*args, **kwargs)

    def train(self, mode: bool = True) -> Network:
        """Frozen modules, and statistics where they are fixed, never leave evaluation mode."""
        super().train(mode)
        for module in self.modules():
            if is_frozen(module) or (self.statistics_fixed and isinstance(module, Norms)):
                module.eval()
        return self


class _Past(Network):
    """Columns that only hand on what their lateral layers were given."""

    def forward(self, *args: Any, **kwargs: Any) -> list[Inputs]:
        seen: list[Inputs] = []
        _run(self, seen, args, kwargs)
        return seen


def _influential(past: _Past, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> set[str]:
    """The parameters of earlier columns that reach the input of some lateral layer: a draw of any other would go unseen.

    Heads never do, nor does what lies behind the last lateral layer, in a ResNet its largest convolutions. A Kronecker draw of a
    large layer costs more than its forward, so it is worth a look at two examples, once.
    """

    def few(x: Any) -> Any:
        return x[:2] if isinstance(x, Tensor) and x.ndim else x

    named = {name: p for name, p in past.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        seen = past(*map(few, args), **{k: few(v) for k, v in kwargs.items()})
        given = [a.sum() for inputs in seen for calls in inputs.values() for a, _ in calls if a.requires_grad]
        if not given:
            return set()
        found = torch.autograd.grad(torch.stack(given).sum(), list(named.values()), allow_unused=True)
    return {name for name, gradient in zip(named, found, strict=True) if gradient is not None}


def _run(network: Network, seen: list[Inputs], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The output of the last column; `seen` grows by what each one's lateral layers were given."""
    output = None
    for name, module in network.columns.items():
        laterals = network.laterals[name]
        given: Inputs = {path: [] for path in network.paths}
        handles = []
        try:
            # For this call alone, and so behind every other hook: whoever watches a layer sees its own output, not the mean.
            for k, path in enumerate(network.paths):
                incoming = [list(sources.children())[k] for sources in laterals.children()]
                meet = partial(_meet, path, incoming, given[path], [inputs[path] for inputs in seen])
                handles.append(module.get_submodule(path).register_forward_hook(meet, with_kwargs=True))
            output = module(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        seen.append(given)
    return output


def _meet(
    path: str,
    incoming: Sequence[nn.Module],
    given: list[Given],
    theirs: Sequence[list[Given]],
    layer: nn.Module,
    args: Any,
    kwargs: Any,
    out: Tensor,
) -> Tensor | None:
    """The mean of a layer's own output and those of its laterals, on what the earlier columns' layers were given."""
    (a,) = args or kwargs.values()
    call = len(given)
    given.append((a, _version(a)))
    total = out
    for i, (lateral, inputs) in enumerate(zip(incoming, theirs, strict=True)):
        if call >= len(inputs):
            raise LateralMismatch(
                f'layer "{path}" is called {call + 1} times in this column and {len(inputs)} times in column {i}: laterals '
                "need one call for one. Leave it out of laterals=..."
            )
        their_input, version = inputs[call]
        if _version(their_input) != version:
            raise ChangedInput(
                f'the input of "{path}" in column {i} was changed in place after the layer had read it (as by '
                "x += layer(x)): write x = x + layer(x), or leave it out of laterals=..."
            )
        arriving = lateral(their_input)
        if arriving.shape != out.shape:
            raise LateralMismatch(
                f'layer "{path}" gives {tuple(out.shape)} in this column and {tuple(arriving.shape)} from column {i}: '
                "laterals need one shape. Leave it out of laterals=..."
            )
        total = total + arriving
    return total / (1 + len(incoming)) if incoming else None
