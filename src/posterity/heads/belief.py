"""What a head knows of its outputs: one normal belief about a linear function of the inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.heads.views import Axes, View


@dataclass(frozen=True, eq=False)
class Belief:
    """The normal posterior of w in w·x, with one curvature for all training examples: (1/prior + curvature · Σ xxᵀ)⁻¹."""

    view: View
    middle: Float[Tensor, " d"]
    """Taken from what the view gives."""
    axes: Axes
    """Of the training inputs."""
    prior: float
    """The variance of the output before any example, for an input of length one."""
    curvature: float
    """The second derivative of a training example's NLL by the output."""

    def inputs(self, features: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """Features as the belief sees them."""
        return self.view(features) - self.middle

    @property
    def variances(self) -> Float[Tensor, " r"]:
        """Along the axes, for an input of length one."""
        return 1 / (1 / self.prior + self.curvature * self.axes.values)

    def variance(self, inputs: Float[Tensor, "m d"]) -> Float[Tensor, " m"]:
        """The variance of the output at each input: large far from the training inputs."""
        inside = (inputs @ self.axes.vectors).square()
        outside = (inputs.square().sum(1) - inside.sum(1)).clamp_min(0)
        return inside @ self.variances + outside * self.prior

    def open(self, inputs: Float[Tensor, "m d"]) -> Float[Tensor, " m"]:
        """The share of the prior's variance that is left, from 0 to 1."""
        return self.variance(inputs) / (self.prior * inputs.square().sum(1)).clamp_min(1e-300)

    def open_without(
        self, inputs: Float[Tensor, "m d"], together: Int[Tensor, " m"] | None = None
    ) -> Float[Tensor, " m"]:
        """The share of the prior's variance at each training input after it, with all of its group, is left out."""
        along = inputs @ self.axes.vectors
        own = (along.square() * self.variances).sum(1)
        left = own / (1 - self.curvature * own)
        for unit in [] if together is None else together.unique():
            some = (together == unit).nonzero().flatten()
            block = (along[some] * self.variances) @ along[some].mT
            one = torch.eye(len(some), dtype=block.dtype)
            left[some] = torch.linalg.solve(one - self.curvature * block, block).diagonal()
        return left / (self.prior * inputs.square().sum(1)).clamp_min(1e-300)
