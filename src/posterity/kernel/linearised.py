"""The exact Gauss–Newton posterior of few examples, kept as what it says about outputs; averages of several predict.

The network is linear in its weights around a point and its prior is a kernel. Nothing else is approximated: no Kronecker
factors, no diagonal, no draws. What it would say of an example that it had not seen is there for free (`left_out`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from posterity.brief import brief
from posterity.curvature import Likelihood
from posterity.data.leave_out import STAYS
from posterity.kernel.jacobian import Jacobian
from posterity.kernel.kernels import Kept, Kernel, Strength
from posterity.kernel.latent import Latent
from posterity.kernel.left_out import Calibration, LeaveOneOut, leave_out
from posterity.kernel.mode import Observations


@dataclass(frozen=True, eq=False)
class LinearisedNetwork:
    """A network made linear in its weights, at its training examples: all that inference in function space needs."""

    __repr__ = brief

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
        total = of.outputs.double()
        for name, direction in self.shift.items():
            total = total + of.blocks[name].along(direction.double())
        return total

    def posterior(self, strength: Strength | None = None, guess: Tensor | None = None) -> FunctionPosterior:
        """The posterior for one strength of the prior, None its own numbers; `guess` is one of the outputs at the mode."""
        gram = self.kernel.own(self.train, strength)
        latent = self.kernel.mode(gram, Observations(self.start(), self.likelihood, self.targets, guess))
        return FunctionPosterior(self, strength, latent)


@dataclass(frozen=True, eq=False)
class FunctionPosterior:
    """The posterior over outputs for one strength of the prior."""

    __repr__ = brief

    of: LinearisedNetwork
    strength: Strength | None
    latent: Latent

    @property
    def log_evidence(self) -> float:
        """ln p(data) of the linearised model, by Laplace. Exact for Gaussian noise."""
        return self.latent.log_evidence

    def left_out(self, groups: Int[Tensor, " n"] | None = None) -> LeaveOneOut:
        """Every training example's outputs predicted without it, or without its group, from this one posterior."""
        return leave_out(self.latent, self.of.likelihood, self.of.targets, groups)

    def refitted(self, folds: Int[Tensor, " n"]) -> LeaveOneOut:
        """Left-out predictions by refitting without each fold in turn: exact for the linearised model, a mode search a fold.

        Examples of the fold −1 are never left out, and keep the outputs of this posterior.
        """
        of, kernel = self.of, self.of.kernel
        gram, start = kernel.own(of.train, self.strength), of.start()
        n, c = start.shape
        mean, covariance = self.latent.outputs.clone(), start.new_zeros(n, c, c)
        for fold in folds[folds != STAYS].unique():
            out, kept = (folds == fold).nonzero().flatten(), (folds != fold).nonzero().flatten()
            rest = Observations(start[kept], of.likelihood, of.targets[kept], self.latent.outputs[kept])
            latent = kernel.mode(kernel.part(gram, kept, kept), rest)
            cross = kernel.part(gram, kept, out)
            mean[out] = start[out] + latent.mean(cross)
            covariance[out] = latent.covariance(cross, kernel.diagonal(gram, out))
        return LeaveOneOut(mean, covariance)

    def moments(
        self, new: Jacobian, kept: Kept | None = None
    ) -> tuple[Float[Tensor, "m outputs"], Float[Tensor, "m outputs outputs"]]:
        """Mean and covariance (float64) of the outputs at other inputs.

        `kept` holds kernels with these inputs, for other posteriors of the same examples: an empty one to begin with.
        """
        cross = self.of.kernel.between(self.of.train, new, self.strength, kept)
        mean = self.of.start(new) + self.latent.mean(cross)
        return mean, self.latent.covariance(cross, self.of.kernel.within(new, self.strength, kept))


@dataclass(frozen=True, eq=False)
class NetworkCentred(FunctionPosterior):
    """The same covariance around the network's own outputs: training need not have arrived at the mode for that."""

    def moments(
        self, new: Jacobian, kept: Kept | None = None
    ) -> tuple[Float[Tensor, "m outputs"], Float[Tensor, "m outputs outputs"]]:
        _, covariance = super().moments(new, kept)
        return new.outputs.double(), covariance


@dataclass(frozen=True, eq=False)
class StrengthMember:
    """One posterior of an average."""

    __repr__ = brief

    weight: float
    posterior: FunctionPosterior
    calibration: Calibration
    nll: float
    """Mean NLL in nats of examples that were left out."""
    log_probs: Float[Tensor, " n"] | None = None
    """ln p of each training example that was left out, when it was."""


@dataclass(frozen=True, eq=False)
class StrengthChoice:
    """What was chosen, from how many."""

    __repr__ = brief

    members: tuple[StrengthMember, ...]
    options: int
    """The size of the declared grid: strengths times widths times temperatures."""
    criterion: str
    strengths: int = 1
    """How many strengths of the prior were to choose from."""
    for_mode: Strength | None = None
    """The strength whose *mode* predicts best what was left out: for a network that is used by itself."""

    @property
    def best(self) -> StrengthMember:
        """The member of greatest weight."""
        return self.members[0]
