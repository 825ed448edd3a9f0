"""Why a network does not run on its inputs, said in terms of the layer that failed. Errors of its own stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from posterity.blocks import evaluating, run_with
from posterity.errors import BadData


def explained(error: Exception, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BadData | None:
    """The layer that cannot take its input and what it got, as an error to raise; None if the network runs by itself.

    Args:
        error: what the network raised.
        model: the network.
        args: its inputs by position.
        kwargs: its inputs by name.
    Returns:
        A `BadData` where the reason is known: another number of features or channels, or another dtype.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return None
    last: list[tuple[str, nn.Module, list[Tensor]]] = []
    through: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        stack.enter_context(torch.no_grad())
        for name, layer in model.named_modules():
            if not any(layer.children()):
                hook = layer.register_forward_pre_hook(
                    lambda layer, given, name=name: last.append((name, layer, list(_tensors(given))))
                )
                done = layer.register_forward_hook(lambda layer, given, out, name=name: through.append(name))
                stack.callback(hook.remove)
                stack.callback(done.remove)
        try:
            # What the network writes into buffers goes into copies.
            run_with(model, {name: b.clone() for name, b in model.named_buffers()}, tuple(args), kwargs)
        except Exception:  # it fails again, in whatever way: the last layer that was reached tells why
            pass
        else:
            return None
    given = [*_tensors(args), *_tensors(list(kwargs.values()))]
    stopped = bool(last) and last[-1][0] not in through[-1:]
    sentence = _sentence(model, given, last[-1] if last else None, str(error) if stopped else "")
    return None if sentence is None else BadData(sentence)


def _sentence(
    model: nn.Module, given: list[Tensor], last: tuple[str, nn.Module, list[Tensor]] | None, reason: str
) -> str | None:
    """`reason` is what the last layer said, where it is the one that failed."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    x = given[0] if given else None
    if x is not None and parameter is not None and x.dtype != parameter.dtype:
        want = _dtype(parameter)
        if x.is_floating_point():
            return (
                f"inputs are {_dtype(x)} and the network is {want}: convert the inputs with .to(torch.{want}), or the network "
                f"with .to(torch.{_dtype(x)})."
            )
        if not (last is not None and isinstance(last[1], nn.Embedding)):
            scale = " / 255" if x.dtype == torch.uint8 else ""
            return (
                f"inputs are whole numbers ({_dtype(x)}) and the network is {want}: convert them with .float(){scale}."
            )
    if last is None:
        return None
    name, layer, got = last
    where = f'layer "{name}" ({type(layer).__name__})'
    seen = f"the network was given {_shapes(given)}; the first number counts examples"
    if got:
        for attribute, axis, unit in (("in_features", -1, "features"), ("in_channels", 1, "channels")):
            wanted = getattr(layer, attribute, None)
            if wanted is not None and got[0].ndim > 1 and got[0].shape[axis] != wanted:
                return f"{where} takes {wanted} {unit} and got {got[0].shape[axis]} ({seen})."
    if got and reason and type(layer).__module__.startswith("torch.nn."):
        return f"{where} cannot take {_shapes(got)}: {reason.splitlines()[0].rstrip('.')} ({seen})."
    return None


def _shapes(tensors: list[Tensor]) -> str:
    return ", ".join(f"{'×'.join(map(str, t.shape)) or 'a number'} {_dtype(t)}" for t in tensors) or "nothing"


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, (tuple, list)):
        for one in given:
            yield from _tensors(one)
