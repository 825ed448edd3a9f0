"""A new column, trained to the mode of its posterior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from posterity.curvature import Data
from posterity.curvature.batches import is_pair
from posterity.gaussian import Gaussian
from posterity.laplace import History, train
from posterity.progressive.memory import POOL
from posterity.progressive.network import Network
from posterity.progressive.task import Task

MEMORY_LIMIT = 1 << 30
"""Bytes that may be spent on what earlier columns hand on."""


EPOCHS = 100
"""Of a column's training, where the user says nothing."""


def train_column(
    network: Network, task: Task, prior: Gaussian | None, memory_limit: int, seed: int, options: Mapping[str, Any]
) -> History:
    """Train the last of some columns. What the earlier ones hand on is kept where that can be: see `Network.remember`."""
    # A column is built where it is to start: laterals and heads have no counterpart at their prior's mean.
    data, options = task.train, dict[str, Any](epochs=EPOCHS, start="model") | dict(options)
    if options.get("device") is not None:
        network.to(options["device"])
    # Every draw of the pool runs once for all examples, which takes epochs to pay off; weights that are not drawn, only one.
    worth = options["epochs"] > (1 if network.draws is None else POOL)
    if memory_limit and worth and not options.get("augment"):
        data, options["validation"] = _remembered(network, data, options.get("validation"), memory_limit)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # for dropout, which takes no generator
            dice = torch.Generator().manual_seed(seed)
            return train(network.train(), data, prior, task.likelihood, generator=dice, **options)
    finally:
        network.forget()


def _remembered(network: Network, data: Data, validation: Any, memory_limit: int) -> tuple[Data, Any]:
    """Numbers of examples for the examples themselves, where these are tensors and there is room."""
    held = [validation] if is_pair(validation) else []
    if not is_pair(data) or not (held or validation is None or isinstance(validation, float)):
        return data, validation
    x, y = data
    device = next(network.parameters()).device
    if not network.remember([part.to(device) for part in (x, *(x for x, _ in held))], memory_limit):
        return data, validation
    numbers = torch.arange(len(x) + sum(len(y) for _, y in held))
    return (numbers[: len(x)], y), (numbers[len(x) :], held[0][1]) if held else validation
