"""The exact Gauss–Newton posterior of few examples, kept as what it says about outputs.

The network is linear in its weights around a point and its prior is a kernel. Nothing else is approximated: no Kronecker
factors, no diagonal, no draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.curvature import Likelihood
from posterity.kernel.jacobian import Jacobian
from posterity.kernel.kernels import Kernel, Strength
from posterity.kernel.latent import Latent
from posterity.kernel.leave_one_out import LeftOut, leave_out


@dataclass(frozen=True, eq=False)
class Linearised:
    """A network made linear in its weights, at its training examples: all that inference in function space needs."""

    kernel: Kernel
    train: Jacobian
    targets: Tensor
    likelihood: Likelihood
    classes: int
    """How many outputs the task has: a new head may have another number than the prior's."""
    shift: Mapping[str, Tensor] | None
    """The prior's mean minus the point of linearisation, in each block's frame; empty where they are one, None for a new
    head, whose outputs are zero before any data."""

    def start(self, of: Jacobian | None = None) -> Float[Tensor, "n outputs"]:
        """Outputs at the prior's mean, by the linear model: zero for a new head."""
        of = of or self.train
        if self.shift is None:
            return of.outputs.new_zeros(of.count, self.classes).double()
        return moved(of, self.shift)

    def posterior(self, strength: Strength | None = None, guess: Tensor | None = None) -> FunctionPosterior:
        """The posterior for one strength of the prior, None its own numbers; `guess` is one of the outputs at the mode."""
        gram = self.kernel.own(self.train, strength)
        latent = self.kernel.mode(gram, self.start(), self.likelihood, self.targets, guess)
        return FunctionPosterior(self, strength, latent)


@dataclass(frozen=True, eq=False)
class FunctionPosterior:
    """The posterior over outputs for one strength of the prior."""

    of: Linearised
    strength: Strength | None
    latent: Latent

    @property
    def log_evidence(self) -> float:
        """ln p(data) of the linearised model, by Laplace. Exact for Gaussian noise."""
        return self.latent.log_evidence

    def left_out(self, groups: Int[Tensor, " n"] | None = None) -> LeftOut:
        """Every training example's outputs predicted without it, or without its group, from this one posterior."""
        return leave_out(self.latent, self.of.likelihood, self.of.targets, groups)

    def refitted(self, folds: Int[Tensor, " n"]) -> LeftOut:
        """The same by refitting without each fold in turn: exact for the linearised model, a mode search a fold."""
        of, kernel = self.of, self.of.kernel
        gram, start = kernel.own(of.train, self.strength), of.start()
        n, c = start.shape
        mean, covariance = torch.empty_like(start), start.new_empty(n, c, c)
        for fold in folds.unique():
            out, kept = (folds == fold).nonzero().flatten(), (folds != fold).nonzero().flatten()
            latent = kernel.mode(
                kernel.part(gram, kept, kept), start[kept], of.likelihood, of.targets[kept], self.latent.outputs[kept]
            )
            cross = kernel.part(gram, kept, out)
            mean[out] = start[out] + latent.mean(cross)
            covariance[out] = latent.covariance(cross, kernel.diagonal(gram, out))
        return LeftOut(mean, covariance)

    def moments(self, new: Jacobian) -> tuple[Float[Tensor, "m outputs"], Float[Tensor, "m outputs outputs"]]:
        """Mean and covariance (float64) of the outputs at other inputs."""
        cross = self.of.kernel.between(self.of.train, new, self.strength)
        mean = self.of.start(new) + self.latent.mean(cross)
        return mean, self.latent.covariance(cross, self.of.kernel.within(new, self.strength))


@dataclass(frozen=True, eq=False)
class AroundNetwork(FunctionPosterior):
    """The same covariance around what the network itself says: training need not have arrived at the mode for that."""

    def moments(self, new: Jacobian) -> tuple[Float[Tensor, "m outputs"], Float[Tensor, "m outputs outputs"]]:
        _, covariance = super().moments(new)
        return new.outputs.double(), covariance


def moved(jacobian: Jacobian, shift: Mapping[str, Tensor]) -> Float[Tensor, "n outputs"]:
    """Outputs of the linear model with weights shifted from the point of linearisation, in float64."""
    total = jacobian.outputs.double()
    for name, direction in shift.items():
        total = total + jacobian.blocks[name].along(direction.double())
    return total
