"""The last steps of training, on all examples at once: from near a mode to the mode."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable

import torch
from torch import nn

from posterity.data.batches import Batch
from posterity.laplace.run import BatchSource, Epoch, Goal

ARRIVED = 0.05
"""A mean objective whose gradient has a smaller norm than this is at its mode, as far as predictions can tell."""


class NotAtMode(UserWarning):
    """Training ended where the objective still has a slope: curvature and leave-one-out speak of a mode."""


def polished(model: nn.Module, goal: Goal, source: BatchSource, where: torch.device, steps: int) -> tuple[Epoch, float]:
    """Down to the mode on all examples at once; the slope that is left, in summed nats, with a warning if it is no mode."""
    model.eval()
    goal.take(Batch.joined(list(source)), where)
    goal.exact = True
    before = goal()
    kept = [p.detach().clone() for p in goal.parameters]
    polish(goal.parameters, goal, steps)
    after = goal()
    if not after <= before:
        with torch.no_grad():
            for p, old in zip(goal.parameters, kept, strict=True):
                p.copy_(old)
        goal()
    left = slope(goal.parameters) * source.count
    if left > ARRIVED * source.count:
        warnings.warn(
            f"training ended {left / source.count:.2g} nats an example and unit of weight away from a flat place: more "
            "polish_steps, or a stronger prior, would bring it to the mode.",
            NotAtMode,
            stacklevel=levels_to_the_user(),
        )
    value, nll, accuracy = goal.seen[-1]
    return Epoch(value, nll, accuracy, math.nan, math.nan, math.nan), left


def polish(parameters: Iterable[nn.Parameter], objective: Callable[[], float], steps: int) -> None:
    """L-BFGS on all examples at once: from near a mode to the mode."""
    optimiser = torch.optim.LBFGS(
        list(parameters), max_iter=steps, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=1e-9
    )
    optimiser.step(objective)


def slope(parameters: Iterable[nn.Parameter]) -> float:
    """The norm of the objective's gradient, as the last backward pass left it."""
    return math.sqrt(sum(float(p.grad.double().square().sum()) for p in parameters if p.grad is not None))


def levels_to_the_user() -> int:
    """How far up the first call stands that is not of this library: that line is what a warning should name."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "posterity":
        frame, levels = frame.f_back, levels + 1
    return levels
