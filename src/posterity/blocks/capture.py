"""Watching a network run: the input of each call of a block on the way forward, its gradient on the way back.

No parameter takes part in the backward pass and nothing is written into the network, so a pass costs the gradients of
activations and no more. What a block needs is handed over as soon as its gradient is there, and then let go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from posterity.blocks.base import Layer, accumulating
from posterity.errors import ChangedInput, UnreachedBlock

Expand = Callable[[Tensor], Tensor]


@dataclass
class Call:
    """One call of a block: its input, and its output gradient once the backward pass has reached it."""

    a: Tensor | None
    s: Tensor | None = None
    version: int = 0
    """How often the input had been changed in place when the layer read it."""


@dataclass
class Recorder:
    """Collects the calls of one batch.

    `on_input(name, a)` is called at every call going forward; `on_gradient(name, calls)` of each block once, going back,
    when all its calls have their gradients (a module applied twice has two calls).
    """

    examples: int
    on_input: Callable[[str, Tensor], None]
    on_gradient: Callable[[str, list[Call]], None]
    keep_inputs: bool = True
    calls: dict[str, list[Call]] = field(default_factory=dict)
    anchor: Tensor = field(default_factory=lambda: torch.zeros((), requires_grad=True))

    def tap(self, name: str, layer: Layer, a: Tensor, out: Tensor, expand: Expand | None = None) -> Tensor:
        """Note a call of block `name` with input `a`; returns `out`, which the network must go on with."""
        a, out = layer.spread(a.detach(), out, self.examples)
        a = layer.by_example(accumulating(a) if a.is_floating_point() else a, self.examples, name)
        self.on_input(name, a)
        call = Call(a if self.keep_inputs else None, version=version_of(a))
        self.calls.setdefault(name, []).append(call)

        def arrived(s: Tensor) -> None:
            s = accumulating(s.detach())
            call.s = layer.by_example(expand(s) if expand else s, self.examples, name)
            if all(c.s is not None for c in self.calls[name]):
                self._hand_over(name)

        # A view cannot be marked as changed in place inside a custom function; one copy settles it.
        return _Tap.apply(out.clone() if out._is_view() else out, self.anchor, arrived)

    def backward(self, outputs: Tensor, residual: Tensor, again: bool) -> None:
        """Send `residual` back through the network. `again` keeps the graph for another one."""
        if changed := [
            n for n, cs in self.calls.items() if any(c.a is not None and version_of(c.a) != c.version for c in cs)
        ]:
            raise ChangedInput(
                f"the inputs of {changed} were changed in place after the layers had read them (as by x += layer(x)): "
                "write x = x + layer(x), or leave these blocks out with blocks=..."
            )
        if not outputs.requires_grad:
            raise UnreachedBlock(
                f"no gradient leads from the network's output back to {list(self.calls)}: the network ran without automatic "
                "differentiation (torch.no_grad, torch.inference_mode, or a detach inside it)."
            )
        torch.autograd.grad(outputs, self.anchor, residual, retain_graph=again, allow_unused=True)
        # A call the loss does not depend on got no gradient: it contributes nothing.
        for name, calls in self.calls.items():
            if any(c.s is not None for c in calls):
                self._hand_over(name)

    def _hand_over(self, name: str) -> None:
        self.on_gradient(name, [c for c in self.calls[name] if c.s is not None])
        for call in self.calls[name]:
            call.s = None


def version_of(a: Tensor) -> int:
    """Inference tensors keep no count, and cannot be changed where gradients are taken."""
    return 0 if a.is_inference() else a._version


class _Tap(torch.autograd.Function):
    """The identity, which reports the gradient on its way back.

    The anchor makes the output part of the graph even where nothing before it is. Marking the output as changed in place,
    instead of returning a view, lets an in-place activation follow: the gradient heard is the one before it.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, anchor: Tensor, arrived: Callable[[Tensor], None]) -> Tensor:
        ctx.mark_dirty(out)
        ctx.arrived = arrived
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        ctx.arrived(grads[0])
        return grads[0], None, None
