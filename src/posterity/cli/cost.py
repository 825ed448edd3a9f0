"""What a run will take, told before anything large is made: memory from shapes alone, time from one small batch."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks
from posterity.kernel.kernels import fits

FACTOR_MEMORY, FACTOR_TIME = 2.5, 5.0
"""How far off an estimate may be, either way: a test holds it to that on small runs."""
TRIED = 16
"""Examples of the batch that time is measured with."""
BATCH = 256
FLOAT, DOUBLE = 4, 8
WORKSPACE = 100_000_000
"""Bytes that torch takes for itself once it computes, whatever it computes."""


@dataclass(frozen=True)
class Cost:
    """An estimate, with what it is made of."""

    memory: int
    """Bytes at the peak, beyond what Python and torch take themselves."""
    seconds: float
    parts: dict[str, int]
    """Bytes by what they are for."""
    parameters: int
    exact: bool
    """Whether few enough examples for the exact posterior in function space."""
    note: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """For a table."""
        most = sorted(self.parts.items(), key=lambda part: -part[1])
        return [
            ("memory, at the peak", f"about {size(self.memory)} (within a factor of {FACTOR_MEMORY:g})"),
            *((f"  {name}", size(value)) for name, value in most if value > 0.02 * self.memory),
            ("time", f"about {duration(self.seconds)} (within a factor of {FACTOR_TIME:g}){self.note}"),
            ("network", f"{self.parameters:,} parameters"),
            ("posterior", "exact, in function space" if self.exact else "structured, around the trained network"),
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "memory_bytes": self.memory,
            "seconds": self.seconds,
            "parts": self.parts,
            "parameters": self.parameters,
            "exact": self.exact,
        }


def cost(
    model: nn.Module,
    shape: tuple[int, ...],
    count: int,
    outputs: int,
    *,
    prior: bool,
    new_head: bool,
    trains: bool,
    epochs: int | None,
) -> Cost:
    """Memory and time of a `learn` or an `adapt`.

    Args:
        model: the network. One small batch is run through it.
        shape: of one input.
        count: examples.
        outputs: of the network.
        prior: whether there is a learned prior.
        new_head: whether the head is new.
        trains: whether the network is trained.
        epochs: at most so many; None is what `pt.train` takes.
    Returns:
        An estimate.
    """
    exact = fits(count, outputs, prior and new_head)
    parameters = sum(p.numel() for p in model.parameters())
    batch = min(BATCH, count)
    activations, seconds = _tried(model, shape)
    sides = [block.shape for block in find_blocks(model).values()]
    parts = {
        "workspace of torch": WORKSPACE,
        "data": 2 * FLOAT * count * math.prod(shape),
        "training": FLOAT * (5 * parameters if trains else 2 * parameters),
        "activations": 3 * FLOAT * batch * activations,
        # Prior, curvature and posterior: two orthogonal bases and a value for every weight, in float64.
        "precisions": 3 * DOUBLE * sum(out * out + inp * inp + 2 * out * inp for out, inp in sides),
    }
    passes = 4.0  # curvature, calibration, hashes, a last look
    algebra = sum(25 * (out**3 + inp**3) for out, inp in sides)
    if trains:
        steps = epochs if epochs is not None else max(100, math.ceil(1500 / max(1, math.ceil(count / BATCH))))
        # Training ends early once it no longer helps: half of what it may take, on average.
        passes += 0.5 * steps if not (prior and exact) else 100
    if exact:
        side = count if (prior and new_head) else count * outputs
        directions = max(10, outputs)
        parts["kernel"] = 8 * DOUBLE * side * side
        parts["Jacobian"] = 2 * DOUBLE * count * directions * activations
        passes += 3 * directions
        algebra += (60 if prior else 4) * side**3 // 3 + 2 * side * side * activations
    return Cost(sum(parts.values()), passes * count * seconds + algebra / _flops() + 0.5, parts, parameters, exact)


def _tried(model: nn.Module, shape: tuple[int, ...]) -> tuple[int, float]:
    """(numbers that the layers put out for one example, seconds of a forward and backward pass for one)."""
    counted: list[int] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, out: counted.append(out.numel() if isinstance(out, Tensor) else 0))
        for layer in model.modules()
        if not any(layer.children())
    ]
    kept = {module: module.training for module in model.modules()}
    model.eval()
    x = torch.zeros(TRIED, *shape)
    best = math.inf
    try:
        for _ in range(3):
            began = time.perf_counter()
            model(x).sum().backward()
            best = min(best, time.perf_counter() - began)
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in kept.items():
            module.training = mode
        model.zero_grad(set_to_none=True)
    return sum(counted) // (3 * TRIED), best / TRIED


def _flops() -> float:
    """Of float64 on this machine, a second: measured on a small product."""
    a = torch.ones(256, 256, dtype=torch.float64)
    a @ a
    began = time.perf_counter()
    for _ in range(3):
        a @ a
    return 3 * 2 * 256**3 / max(time.perf_counter() - began, 1e-6)


def size(count: float) -> str:
    """Bytes in words."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "a second"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
