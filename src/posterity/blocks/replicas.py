"""Copies of a network that predict at the same time."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from torch import Tensor, nn

from posterity.blocks.base import Block
from posterity.blocks.multihead import plain_attention
from posterity.blocks.network import find_blocks, named
from posterity.errors import UnsupportedNetwork

T = TypeVar("T")


class LayerCall:
    """What a layer was given when it was last called, and what it returned."""

    def __init__(self, module: nn.Module, layer: str) -> None:
        self.layer = module.get_submodule(layer)
        self.seen: tuple[Tensor, Tensor] | None = None
        self._handle = self.layer.register_forward_hook(self._take)

    def _take(self, _: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        # Passes for gradients call the layer too, and their graph is not to be kept.
        self.seen = given[0].detach(), out.detach()

    def taken(self) -> tuple[Tensor, Tensor]:
        """Both, let go of."""
        assert self.seen is not None
        seen, self.seen = self.seen, None
        return seen

    def close(self) -> None:
        """Take the hook off."""
        self._handle.remove()


class Replica:
    """A network in evaluation mode that one thread at a time runs, with its blocks found once.

    Hooks stay on a module that is the replica's `own`; they are taken off any other after each prediction.
    """

    def __init__(self, module: nn.Module, *, own: bool = False) -> None:
        self.module, self._own = module, own
        self.like = next(module.parameters())
        """For the device and precision of inputs."""
        self._made: dict[Any, Any] = {}

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What is made of this network once and used by every prediction."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    @contextmanager
    def hooked(self, key: Any, make: Callable[[], Any]) -> Iterator[Any]:
        """Hooks on the network that something makes and can `close`, for as long as the context lasts."""
        if self._own:
            yield self.once(key, make)
            return
        hooks = make()
        try:
            yield hooks
        finally:
            hooks.close()

    def call_of(self, layer: str) -> AbstractContextManager[LayerCall]:
        """What a layer is given while the context lasts, and what it returns."""
        return self.hooked(("call", layer), partial(LayerCall, self.module, layer))

    def blocks(self, like: Mapping[str, Any]) -> dict[str, Block]:
        """The blocks of these names."""
        return self.once(("blocks", *like), lambda: find_blocks(self.module, named(like)))


class Replicas:
    """As many replicas of a network as there are predictions at the same time.

    Running a network with other weights, and watching its layers, changes the module for as long as it runs. So a fit never runs
    the user's: it has its `own` copy of the weights (or those of a network that never changes), and every prediction borrows a
    replica, whose modules are its own and whose weights are shared with all other replicas.
    """

    def __init__(self, model: nn.Module, *, own: bool = True) -> None:
        self._original = copied(model, own=own).eval()
        self._idle: deque[Replica] = deque()

    @property
    def network(self) -> nn.Module:
        """The copy that replicas share their weights with. Nothing runs it."""
        return self._original

    @contextmanager
    def one(self) -> Iterator[Replica]:
        """A replica that no other thread runs."""
        try:
            replica = self._idle.pop()
        except IndexError:
            replica = Replica(copied(self._original, own=False), own=True)
        with plain_attention():
            yield replica
        self._idle.append(replica)  # after an error it is not used again

    def __deepcopy__(self, memo: dict[int, Any]) -> Replicas:
        return Replicas(self._original)

    def __reduce__(self) -> tuple[Any, ...]:
        return Replicas, (self._original,)


def copied(model: nn.Module, *, own: bool = True) -> nn.Module:
    """A network with weights of its `own`, or with those of the original.

    What a forward pass left in it (activations that a network keeps, with their graph) does not come along as such.
    """
    kept = [value for module in model.modules() for value in vars(module).values()]
    memo: dict[int, Any] = {id(x): x.detach() for x in _tensors(kept) if not x.is_leaf}
    if not own:
        memo |= {id(x): x for x in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, memo)


def check_copyable(model: nn.Module) -> None:
    """Refuse a network that cannot be copied, before anything is learned."""
    try:
        copied(model, own=False)
    except Exception as error:
        raise UnsupportedNetwork(
            f"the network cannot be copied, and predictions run copies of it ({type(error).__name__}: {error}): keep what "
            "cannot be copied outside of it, or give it a __deepcopy__."
        ) from error


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for x in value.values() if isinstance(value, dict) else value:
            yield from _tensors(x)
