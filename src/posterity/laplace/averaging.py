"""Weights averaged over the last epochs of training: a flatter place, and fewer errors, for the price of a running mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """The mean of the trainable weights over every step of the last `last` of `epochs` epochs."""

    def __init__(self, model: nn.Module, last: int, epochs: int | None) -> None:
        if last < 1:
            raise ValueError(f"average counts epochs: 0 or more, not {last}")
        if epochs is None:
            raise ValueError("average speaks of the last epochs: say how many epochs there are")
        if any(getattr(module, "track_running_stats", False) for module in model.modules()):
            raise ValueError(
                "average leaves weights whose norm statistics no batch has measured: freeze the statistics, or do without"
            )
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.begin = epochs - last
        self.count = 0
        self.mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, epoch: int) -> None:
        """Take in the weights as they are after a step of this epoch."""
        if epoch < self.begin:
            return
        self.count += 1
        for name, p in self.parameters.items():
            if name in self.mean:
                self.mean[name].lerp_(p.double(), 1 / self.count)
            else:
                self.mean[name] = p.detach().double().clone()

    @torch.no_grad()
    def write(self) -> None:
        """The mean into the network."""
        for name, value in self.mean.items():
            self.parameters[name].copy_(value)

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps; nothing before there is a mean."""
        return {"count": self.count, "mean": self.mean} if self.count else None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        mean = {str(name): value.double() for name, value in state["mean"].items()}
        if mean.keys() != self.parameters.keys() or any(
            value.shape != self.parameters[name].shape or not bool(value.isfinite().all())
            for name, value in mean.items()
        ):
            raise ValueError("averaged weights that are not those of this network")
        if not isinstance(state["count"], int) or state["count"] < 1:
            raise ValueError(f"an average over {state['count']} steps")
        self.mean, self.count = mean, state["count"]
