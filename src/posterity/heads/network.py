"""The network that a head on features is, for Gaussians over weights: rows of length one, and one linear layer."""

from __future__ import annotations

from torch import Tensor, nn

from posterity.heads.views import unit


class FeatureNetwork(nn.Module):
    """Features scaled to unit length, then one linear layer: what the posterior's draws and certificates speak of."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, outputs)

    def forward(self, features: Tensor) -> Tensor:
        """Logits, or a number."""
        found: Tensor = self.linear(unit(features))
        return found
