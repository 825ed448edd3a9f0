"""Does training arrive? Enough steps for few examples, a start at the prior's mean, and a look at the gradient in the end."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import nn

from posterity.gaussian import Gaussian

log = logging.getLogger("posterity")

Start = Literal["prior", "model"]
STEPS = 1500
"""Steps of the optimiser that training may take at least: epochs of one batch are no measure of effort."""


class NotAtMode(UserWarning):
    """Training ended where the objective still has a slope: curvature and leave-one-out speak of a mode."""


def epochs_for(batches: int) -> int:
    """At least a hundred epochs, and enough for `STEPS` steps."""
    return max(100, math.ceil(STEPS / max(1, batches)))


def patience(epochs: int, batches: int) -> int:
    """A number of epochs without progress, for epochs of few batches: at least ten times as many steps."""
    return max(epochs, math.ceil(10 * epochs / max(1, batches)))


def move_to_prior(model: nn.Module, prior: Gaussian) -> bool:
    """Write a learned prior's mean into the network. A prior around zero says nothing of where to start."""
    if not any(bool(mean.any()) for mean in prior.mean.values()):
        return False
    prior.write_to(model, frozen=False)
    log.info("training starts at the prior's mean")
    return True


def polish(parameters: Iterable[nn.Parameter], objective: Callable[[], float], steps: int) -> None:
    """L-BFGS on all examples at once: from near a mode to the mode."""
    optimiser = torch.optim.LBFGS(
        list(parameters), max_iter=steps, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=1e-9
    )
    optimiser.step(objective)


def slope(parameters: Iterable[nn.Parameter]) -> float:
    """The norm of the objective's gradient, as the last backward pass left it."""
    return math.sqrt(sum(float(p.grad.double().square().sum()) for p in parameters if p.grad is not None))
