"""Every tensor that a network computes with, and whether it is as torch first made it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

NOTE = "_posterity_past"
"""The attribute in which training leaves its note. It is copied with a network, not with its state_dict."""

NORMS = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
MATRICES = (nn.Linear, nn.modules.conv._ConvNd)
CONSTANTS = (0.0, 1.0, -math.inf)
"""What tensors that no data has touched are filled with: norm statistics, masks."""
DEVIATIONS = 5.0
UNEVEN = 3.0
"""√n times Kolmogorov's distance: beyond this once in 30 million tensors."""


def state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that the network may compute with: parameters, buffers, and plain attributes of its modules."""
    yield from model.named_parameters()
    yield from ((name, x) for name, x in model.named_buffers() if not name.endswith("num_batches_tracked"))
    yield from attributes(model)


def attributes(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that are neither parameters nor buffers, also inside lists, tuples and dictionaries."""

    def within(name: str, value: object, depth: int) -> Iterator[tuple[str, Tensor]]:
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, (list, tuple, dict)) and depth:
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in pairs:
                yield from within(f"{name}[{key}]", item, depth - 1)

    for prefix, module in model.named_modules():
        for key, value in vars(module).items():
            if key not in ("_parameters", "_buffers", "_modules", NOTE):
                yield from within(f"{prefix}.{key}" if prefix else key, value, 2)


def untouched(model: nn.Module, name: str, x: Tensor) -> bool:
    """Whether a tensor lies where torch's own initialisation puts it. Whole numbers and masks are structure, not weights."""
    if not x.is_floating_point():
        return True
    path, _, role = name.rpartition(".")
    try:
        module = model.get_submodule(path)
    except AttributeError:
        return False
    values = x.detach()
    if role in ("running_mean", "running_var") or isinstance(module, NORMS):
        return bool((values == (1.0 if role in ("weight", "running_var") else 0.0)).all())
    if isinstance(module, MATRICES) and role in ("weight", "bias"):
        return _within(values, 1 / math.sqrt(max(1, module.weight[0].numel())))
    if isinstance(module, nn.MultiheadAttention) and role.endswith("_weight"):
        return _within(values, math.sqrt(6 / (values.shape[0] + values.shape[1])))
    if isinstance(module, nn.Embedding) and role == "weight":
        n = values.numel()
        off, spread = abs(float(values.mean())) * math.sqrt(n), abs(float(values.std()) - 1) * math.sqrt(2 * n)
        return off < DEVIATIONS and spread < DEVIATIONS
    return bool(torch.stack([values == constant for constant in CONSTANTS]).any(0).all())


def looks_new(model: nn.Module) -> bool:
    """Whether all weights and statistics lie where torch's own initialisation puts them: enough to train it as new."""
    return all(untouched(model, name, x) for name, x in state(model))


def rewritten(model: nn.Module, name: str, x: Tensor) -> bool:
    """Whether a weight was changed in place since it was made: few steps of training leave it in the range of new ones.

    torch counts such changes, and its own initialisation is one. A copy starts to count again, so that this finds accidents
    and proves nothing.
    """
    path, _, role = name.rpartition(".")
    if role not in ("weight", "bias") or not isinstance(model.get_submodule(path), MATRICES):
        return False
    try:
        return x._version > 1 and bool(x.any())
    except RuntimeError:  # tensors made in inference mode are not counted
        return False


def _within(values: Tensor, bound: float) -> bool:
    """Whether the values are evenly spread over ± bound, as torch draws them.

    By the largest distance between their share below a place and what it should be (Kolmogorov). Trained weights that were
    scaled or clipped to the range are not spread so.
    """
    inside = bool((values.abs() <= bound * (1 + torch.finfo(values.dtype).eps)).all())
    if not inside or bound == 0 or bool((values == 0).all()):
        return inside
    found = (values.flatten().double() / (2 * bound) + 0.5).sort().values
    n = len(found)
    steps = torch.arange(n + 1, dtype=torch.float64, device=found.device) / n
    off = max(float((steps[1:] - found).max()), float((found - steps[:-1]).max()))
    return off * math.sqrt(n) <= UNEVEN
