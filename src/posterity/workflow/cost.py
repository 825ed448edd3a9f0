"""What a run will take, said before anything large is made: memory from shapes alone, time from one small batch."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks
from posterity.curvature import Categorical, GaussianNoise, Likelihood
from posterity.data.leave_out import FOLDS
from posterity.data.weights import looks_new
from posterity.gaussian import Gaussian
from posterity.laplace.prior import head_name
from posterity.workflow.plan import Facts, Plan, Verb, choose_plan
from posterity.workflow.problem import Head, is_learned, is_new_head, is_plain
from posterity.workflow.recipe import Recipe

FACTOR_MEMORY, FACTOR_TIME = 2.5, 5.0
"""How far off an estimate may be, either way: a test holds it to that on small runs."""
TRIED, TRIES = 16, 5
"""Examples of the batch that time is measured with, and how often: the least time is that of an idle machine."""
BATCH = 256
FLOAT, DOUBLE = 4, 8
BATCHED = 0.5
"""What a pass of one of many networks costs that run as one, beside a pass of its own."""
WORKSPACE = 100_000_000
"""Bytes that torch takes for itself once it computes, whatever it computes."""


@dataclass(frozen=True)
class Cost:
    """An estimate, with what it is made of."""

    plan: Plan
    """How it would be learned, and why."""
    memory: int
    """Bytes at the peak, beyond what Python and torch take themselves."""
    seconds: float
    parts: dict[str, int]
    """Bytes by what they are for."""
    parameters: int

    def rows(self) -> list[tuple[str, str]]:
        """The costs as rows of a printed table."""
        most = sorted(self.parts.items(), key=lambda part: -part[1])
        return [
            ("plan", " + ".join(self.plan.ways)),
            *(("because", reason) for reason in self.plan.reasons),
            ("memory, at the peak", f"about {size(self.memory)} (within a factor of {FACTOR_MEMORY:g})"),
            *((f"  {name}", size(value)) for name, value in most if value > 0.02 * self.memory),
            ("time", f"about {duration(self.seconds)} (within a factor of {FACTOR_TIME:g})"),
            ("network", f"{self.parameters:,} parameters"),
        ]

    def to_json(self) -> dict[str, Any]:
        """The costs as values that JSON can hold."""
        return {
            "plan": {"ways": list(self.plan.ways), "reasons": list(self.plan.reasons)},
            "memory_bytes": self.memory,
            "seconds": self.seconds,
            "parts": self.parts,
            "parameters": self.parameters,
        }


def cost(
    model: nn.Module,
    shape: Sequence[int],
    count: int,
    outputs: int,
    likelihood: Likelihood | None = None,
    *,
    verb: Verb = "learn",
    prior: Gaussian | None = None,
    classes: Sequence[str] | None = None,
    head: Head | None = None,
    training: Mapping[str, Any] | None = None,
    candidates: Literal["network", "all"] = "network",
) -> Cost:
    """The plan, memory and time of a `pt.learn` or a `pt.adapt`, before any example is read.

    Args:
        model: the network. One small batch is run through it.
        shape: of one input.
        count: examples.
        outputs: of the network.
        likelihood: what outputs mean; `Categorical()` by default.
        verb: "learn" or "adapt".
        prior: as the verb would get it.
        classes: the names of the classes, where they are known.
        head: as the verb would get it.
        training: options of `pt.train`, as the verb would get them.
        candidates: as `pt.learn` would get it.

    Returns:
        An estimate.

    Example:
        >>> print(*cost(model, (1, 28, 28), 60_000, 10).rows(), sep="\\n")
    """
    blocks, parameters = find_blocks(model), sum(p.numel() for p in model.parameters())
    kind = likelihood or Categorical()
    learned = prior is not None and is_learned(prior)
    new_head = prior is not None and bool(is_new_head(prior, learned, kind, classes, head))
    recipe = Recipe()
    in_memory = count <= recipe.limits.examples and count * math.prod(shape) <= recipe.limits.numbers
    facts = Facts(
        verb,
        count if in_memory else None,
        outputs,
        regression=isinstance(kind, GaussianNoise),
        weights=parameters,
        learns_noise=isinstance(kind, GaussianNoise) and kind.precision is None,
        prior="default" if prior is None else "learned" if learned else "isotropic",
        new_head=new_head,
        trained_as_asked=bool(training),
        trains=verb == "learn",
        new_network=looks_new(model),
        plain_network=is_plain(model, blocks),
        has_head=learned and isinstance(kind, Categorical) and len(blocks) > 1 and head_name(model) is not None,
        inputs=recipe.inputs if candidates == "all" and len(shape) == 1 else None,
        trees=find_spec("sklearn") is not None,
    )
    plan = choose_plan(facts)
    activations, seconds = _tried(model, tuple(shape))
    sides = [block.shape for block in blocks.values()]
    parts = {
        "workspace of torch": WORKSPACE,
        "data": 2 * FLOAT * count * math.prod(shape),
        "training": FLOAT * (5 * parameters if facts.trains else 2 * parameters),
        "activations": 3 * FLOAT * min(BATCH, count) * activations,
        # Prior, curvature and posterior: two orthogonal bases and a value for every weight, in float64.
        "precisions": 3 * DOUBLE * sum(out * out + inp * inp + 2 * out * inp for out, inp in sides),
    }
    passes = 4 + sum(_passes(way, count, recipe, dict(training or {})) for way in plan.ways)
    own, algebra = 0.0, float(sum(25 * (out**3 + inp**3) for out, inp in sides))
    for way in plan.ways:
        seconds_of, algebra_of = _on_inputs(way, count, outputs, recipe)
        own, algebra = own + seconds_of, algebra + algebra_of
    if facts.few and plan.ways[0] not in ("networks from scratch", "network aside"):
        side = count if new_head else count * outputs
        directions = max(10, outputs) if new_head else outputs
        parts["kernel"] = 8 * DOUBLE * side * side
        parts["Jacobian"] = 2 * DOUBLE * count * directions * activations
        passes += 3 * directions
        algebra += (60 if learned else 4) * side**3 // 3 + 2 * side * side * activations
    return Cost(plan, sum(parts.values()), passes * count * seconds + algebra / _flops() + own + 0.5, parts, parameters)


def _on_inputs(way: str, count: int, outputs: int, recipe: Recipe) -> tuple[float, float]:
    """Seconds that do not depend on the machine's algebra, and products, of a model of the inputs."""
    match way:
        case "linear on the inputs":
            return 0.05 + 1e-6 * count * outputs, 0.0
        case "Gaussian process on the inputs":
            return 0.05, 100.0 * count**3
        case "forest on the inputs":
            return 0.1 + 1e-4 * count, 0.0
        case "boosted trees on the inputs":
            return (0.1 + 4e-4 * count) * outputs, 0.0
    return 0.0, 0.0


def _passes(way: str, count: int, recipe: Recipe, training: dict[str, Any]) -> float:
    """How often a way runs the network on all examples, forwards and backwards."""
    networks = FOLDS + 1
    match way:
        case "networks from the prior":
            return networks * recipe.from_prior.steps
        case "networks from scratch":
            each = recipe.from_scratch.training(count)
            return networks * each.steps * min(1.0, (each.batch_size or count) / count)
        case "small networks":
            small = recipe.small_networks
            strengths = len(small.coarse) / small.shorter + len(small.fine)
            return BATCHED * networks * small.long * strengths * min(1.0, small.at_once / count)
        case "network aside":
            return recipe.aside.steps
        case "one network":
            steps = training.get("epochs") or max(100, math.ceil(1500 / max(1, math.ceil(count / BATCH))))
            # Training ends early once it no longer helps: half of what it may take, on average.
            return 0.5 * steps
    return 0


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
        for _ in range(TRIES):
            began = time.perf_counter()
            model(x).sum().backward()
            best = min(best, time.perf_counter() - began)
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in kept.items():
            module.training = mode
        model.zero_grad(set_to_none=True)
    return sum(counted) // (TRIES * TRIED), best / TRIED


def _flops() -> float:
    """Float64 operations a second on this machine, measured on a small product."""
    a = torch.ones(256, 256, dtype=torch.float64)
    a @ a
    began = time.perf_counter()
    for _ in range(3):
        a @ a
    return 3 * 2 * 256**3 / max(time.perf_counter() - began, 1e-6)


def size(count: float) -> str:
    """A number of bytes as text."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def duration(seconds: float) -> str:
    """A number of seconds as text."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "a second"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
