"""What a network's weights have seen: told by the training that left them, or by what they are, or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, read_blocks
from posterity.curvature.provenance import Provenance, together
from posterity.fingerprint import fingerprint

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


@dataclass(frozen=True)
class _Note:
    """What training saw, and the tensors it left, by digest: the note speaks of those that are still the same."""

    provenance: Provenance
    tensors: Mapping[str, str]


def sign(model: nn.Module, provenance: Provenance) -> None:
    """Leave a note in a trained network: what its present weights and statistics have seen."""
    model.__dict__[NOTE] = _Note(provenance, {name: digest(x) for name, x in state(model)})


def past_of(
    model: nn.Module,
    mean: Mapping[str, Tensor] | None = None,
    of_mean: Provenance | None = None,
    *,
    beside: bool = False,
    strict: bool = False,
) -> Provenance:
    """What the present weights and statistics of a network have seen.

    A tensor is known if training left it (`sign`), if it is part of the `mean` of a Gaussian of provenance `of_mean`, or if it
    lies in the range in which torch starts it: then it counts as untrained (but not if `strict`). Anything else has an unknown
    past. With `beside`, only what is outside the blocks of `mean` is looked at.
    """
    note = model.__dict__.get(NOTE)
    parts: list[Provenance] = []
    equal, inside = _at(model, mean or {})
    if equal and of_mean is not None and not beside:
        parts.append(of_mean)
    odd = []
    for name, x in state(model):
        if name in equal or (beside and name in inside):
            continue
        if isinstance(note, _Note) and note.tensors.get(name) == digest(x):
            parts.append(note.provenance)
        elif strict or not untouched(model, name, x):
            odd.append(name)
    if odd:
        rest = f" and {len(odd) - 1} others" if len(odd) > 1 else ""
        parts.append(Provenance.unknown(f'"{odd[0]}"{rest} of the network had been trained, or set, before'))
    return together(dict.fromkeys(parts))


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


def digest(x: Tensor) -> str:
    """A tensor's values, shape and dtype as a few digits."""
    return fingerprint([f"{tuple(x.shape)} {x.dtype}", x])


def matrices_digest(matrices: Mapping[str, Tensor]) -> str:
    """The same for a set of blocks' matrices, whatever order they are in."""
    return fingerprint(part for name in sorted(matrices) for part in (name, digest(matrices[name])))


def _at(model: nn.Module, mean: Mapping[str, Tensor]) -> tuple[set[str], set[str]]:
    """Parameters of blocks that stand at the mean, and those of all its blocks."""
    if not mean:
        return set(), set()
    blocks = find_blocks(model, named(mean))
    equal: set[str] = set()
    inside: set[str] = set()
    for name, matrix in read_blocks(model, blocks).items():
        centre = mean[name]
        parameters = set(blocks[name].parameters.values())
        inside |= parameters
        if matrix.shape == centre.shape and torch.equal(matrix.detach(), centre.to(matrix)):
            equal |= parameters
    return equal, inside


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
