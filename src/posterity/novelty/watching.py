"""What a network's layers are given while it predicts: the features that unknown inputs are found by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d
from torch.utils.hooks import RemovableHandle

from posterity.errors import DamagedFile

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
LAST = 3
"""Layers before the outputs that are watched, beside the input itself."""
INPUT, FEATURES = "input", "features"
"""What a network is given, and what a head alone is given."""
WIDEST = 2000
"""Images of more numbers are averaged over 2 × 2 pixels until they have no more; other inputs are then left out."""


def watched_layers(module: nn.Module) -> tuple[str, ...]:
    """The input and the last layers, in the order of the network. The first layer is given the input itself."""
    named = [name for name, layer in module.named_modules() if isinstance(layer, LAYERS)]
    return INPUT, *named[1:][-LAST:]


class Watch:
    """Rows of features by layer, of the first pass over a batch alone: later passes may repeat its examples.

    Its hooks stay on the network until `close`, and do nothing but between `begin` and `end`. A count of None is one pass with
    any number of examples, so that it may stay open in an exported network.
    """

    def __init__(self, module: nn.Module, layers: Sequence[str]) -> None:
        self._count: int | None = None
        self._parts: dict[str, list[Tensor]] | None = None
        self._handles = [self._hook(module, name) for name in layers]

    def _hook(self, module: nn.Module, name: str) -> RemovableHandle:
        if name == INPUT:
            return module.register_forward_pre_hook(lambda _, given, named: self.given(given, named), with_kwargs=True)
        try:
            layer = module.get_submodule(name)
        except AttributeError:
            raise DamagedFile(
                f'the statistics of known inputs are of a layer "{name}", which the network does not have.'
            ) from None
        return layer.register_forward_pre_hook(lambda one, given: self._take(name, lambda: pooled(one, given[0])))

    def begin(self, count: int | None) -> None:
        """Forget what was seen, and record a batch of so many examples."""
        self._count, self._parts = count, {}

    def end(self) -> None:
        """Record nothing until the next `begin`."""
        self._parts = None

    def close(self) -> None:
        """Take the hooks off the network."""
        for handle in self._handles:
            handle.remove()

    def _take(self, layer: str, seen: Callable[[], Tensor | None]) -> None:
        """What a layer was given, if its rows are not complete yet."""
        if self._parts is None:
            return
        parts = self._parts.setdefault(layer, [])
        complete = bool(parts) if self._count is None else sum(len(part) for part in parts) >= self._count
        if not complete and (rows := seen()) is not None:
            parts.append(rows.detach() if rows.requires_grad else rows)

    def given(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """What the network is given."""
        self._take(INPUT, lambda: inputs_of(given, named))

    @property
    def features(self) -> dict[str, Tensor]:
        """By layer, in the order in which layers were reached; what has no row for every example is left out."""
        seen = (self._parts or {}).items()
        found = {layer: parts[0] if len(parts) == 1 else torch.cat(parts) for layer, parts in seen if parts}
        if self._count is None:
            return found
        return {layer: rows for layer, rows in found.items() if len(rows) == self._count and rows.shape[1]}


@contextmanager
def watching(module: nn.Module, layers: Sequence[str], count: int | None) -> Iterator[Watch]:
    """Record what these layers of a network are given for a batch of so many examples, for as long as the context lasts."""
    watch = Watch(module, layers)
    watch.begin(count)
    try:
        yield watch
    finally:
        watch.close()


def pooled(layer: nn.Module, x: Tensor) -> Tensor:
    """Means over the positions of a layer's input."""
    if x.ndim < 3:
        return x
    return x.flatten(1, -2).mean(1) if isinstance(layer, nn.Linear) else x.flatten(2).mean(2)


def inputs_of(given: tuple[Any, ...], named: Mapping[str, Any]) -> Tensor | None:
    """The first input that is numbers; None where there is none, or it is too wide."""
    x = next((x for x in (*given, *named.values()) if isinstance(x, Tensor) and x.is_floating_point()), None)
    if x is None or x.ndim < 2:
        return None
    while x.ndim == 4 and x[0].numel() > WIDEST and min(x.shape[-2:]) > 1:
        x = avg_pool2d(x, 2)
    return x.flatten(1) if x[0].numel() <= WIDEST else None
