"""Whether a network computes with tensors that it does not own: nobody could tell what those have seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posterity.errors import Unfrozen

WRITTEN_OUT = 16
"""How many numbers a tensor may have that is written out in the network's code (the mean colour of images, say)."""


class OwnTensors(TorchDispatchMode):
    """While it is on, an operation on a tensor from elsewhere raises `Unfrozen`.

    Known are the tensors given, and all that is computed from them or made by torch itself (`torch.zeros`). What is left is
    kept where parameters, buffers and attributes are not looked for: in a closure or a hook, in an array of NumPy, in a
    module that is no submodule, in an object.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self.known = {_memory(x) for x in known}
        self.kept: list[Tensor] = []
        """Results stay alive as long as this: memory that is freed could be that of another tensor later."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
        written = func is torch.ops.aten.lift_fresh.default
        for x in given:
            if _memory(x) not in self.known and not (written and x.numel() <= WRITTEN_OUT):
                raise Unfrozen(
                    f"the network computes with a tensor of shape {tuple(x.shape)} that is no parameter, buffer or attribute of "
                    "its modules (one in a closure, a hook, a NumPy array, or a module kept in a list): nobody can tell what it "
                    "has seen. Register it: register_buffer, nn.Parameter, nn.ModuleList."
                )
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                self.known.add(_memory(x))
                self.kept.append(x)
        return result


def _memory(x: Tensor) -> int:
    """Where a tensor's numbers are; views of one tensor share it."""
    return int(x.untyped_storage()._cdata) if not x.is_sparse else id(x)
