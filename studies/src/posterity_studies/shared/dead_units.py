"""Hidden units that no training image activates.

The loss is flat in the weights that lead into a dead unit. They have no curvature, and their posterior precision is γ alone.
Drawn with variance τ/γ they make the unit fire with values that no image has caused.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def dead_units(model: nn.Sequential, x: Tensor) -> dict[str, Tensor]:
    """By block of a plain stack of layers: which of its outputs the ReLU behind it never lets through."""
    found = {}
    inputs = x.split(1000)
    for (name, layer), follower in zip(model.named_children(), [*list(model)[1:], None], strict=True):
        inputs = tuple(layer(part) for part in inputs)
        if isinstance(layer, (nn.Linear, nn.Conv2d)) and isinstance(follower, nn.ReLU):
            highest = torch.stack([part.amax([d for d in range(part.ndim) if d != 1]) for part in inputs])
            found[name] = highest.amax(0) <= 0
    return found
