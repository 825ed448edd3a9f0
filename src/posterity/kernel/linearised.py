"""The exact Gauss–Newton posterior of few examples, kept as what it says about outputs; averages of several predict.

The network is linear in its weights around a point and its prior is a kernel. Nothing else is approximated: no Kronecker
factors, no diagonal, no draws. What it would say of an example that it had not seen is there for free (`left_out`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posterity.blocks import Block
from posterity.curvature import GaussianNoise, Likelihood
from posterity.curvature.batches import Batch
from posterity.errors import Inconsistent
from posterity.kernel.folds import STAYS
from posterity.kernel.jacobian import BlockFrame, Jacobian, jacobian, outputs_at
from posterity.kernel.kernels import Kept, Kernel, Strength
from posterity.kernel.latent import Latent, Link, spread
from posterity.kernel.left_out import Calibration, LeftOut, leave_out, left_out_some

FAMILIAR = 200
"""Training examples that tell which variances of outputs are usual."""


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
        total = of.outputs.double()
        for name, direction in self.shift.items():
            total = total + of.blocks[name].along(direction.double())
        return total

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

    @cached_property
    def usual(self) -> float:
        """The largest variance of a training example's outputs when it is left out: of some examples, where there are many."""
        latent, n = self.latent, len(self.latent.outputs)
        some = torch.arange(0, n, -(-n // FAMILIAR), device=latent.outputs.device)
        try:
            covariance = left_out_some(latent, self.of.likelihood, self.of.targets, some).covariance
        except Inconsistent:
            covariance = latent.blocks(some[:, None])
        return float(spread(covariance, self.of.likelihood).max())

    def refitted(self, folds: Int[Tensor, " n"]) -> LeftOut:
        """The same by refitting without each fold in turn: exact for the linearised model, a mode search a fold.

        Examples of the fold −1 are never left out, and keep the outputs of this posterior.
        """
        of, kernel = self.of, self.of.kernel
        gram, start = kernel.own(of.train, self.strength), of.start()
        n, c = start.shape
        mean, covariance = self.latent.outputs.clone(), start.new_zeros(n, c, c)
        for fold in folds[folds != STAYS].unique():
            out, kept = (folds == fold).nonzero().flatten(), (folds != fold).nonzero().flatten()
            latent = kernel.mode(
                kernel.part(gram, kept, kept), start[kept], of.likelihood, of.targets[kept], self.latent.outputs[kept]
            )
            cross = kernel.part(gram, kept, out)
            mean[out] = start[out] + latent.mean(cross)
            covariance[out] = latent.covariance(cross, kernel.diagonal(gram, out))
        return LeftOut(mean, covariance)

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
class Member:
    """One posterior of an average."""

    weight: float
    posterior: FunctionPosterior
    calibration: Calibration
    nll: float
    """Mean NLL in nats of examples that were left out."""
    log_probs: Float[Tensor, " n"] | None = None
    """ln p of each training example that was left out, when it was."""


@dataclass(frozen=True, eq=False)
class Networks:
    """Trained networks, used as they are, as one more part of an average."""

    weight: float
    weights: tuple[tuple[float, Mapping[str, Tensor]], ...]
    """How much each network counts, and its weights block by block."""
    calibration: Calibration
    nll: float
    log_probs: Float[Tensor, " n"]


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, from how many."""

    members: tuple[Member, ...]
    options: int
    """The size of the declared grid: strengths times widths times temperatures."""
    criterion: str
    strengths: int = 1
    """How many strengths of the prior were to choose from."""
    for_mode: Strength | None = None
    """The strength whose *mode* predicts best what was left out: for a network that is used by itself."""
    loose: FunctionPosterior | None = None
    """Source and floor alike at the loosest strength of the grid, for scores of unknown inputs; None: the members' own.
    Leave-one-out sees known classes alone: it cannot judge which share of the source, held how loosely, tells strange inputs."""
    networks: Networks | None = None
    """Trained networks beside the posteriors, whose weights add up to 1 with theirs."""

    @property
    def best(self) -> Member:
        """The member of greatest weight."""
        return self.members[0]


@dataclass(frozen=True, eq=False)
class Moments:
    """Normal outputs at new inputs under one member of the average."""

    weight: float
    mean: Float[Tensor, "m outputs"]
    covariance: Float[Tensor, "m outputs outputs"]
    calibration: Calibration
    in_unknown: float | None = None
    """Its weight in scores for unknown inputs, where that is another."""
    usual: float | None = None
    """The largest variance of outputs at known inputs, where it has been looked at."""


@dataclass(frozen=True, eq=False)
class FunctionSpace:
    """The exact posterior of few examples over a network's outputs: what a `Fit` predicts with.

    It speaks of the network made linear in its weights at `point`, not of draws of the weights.
    """

    blocks: Mapping[str, Block]
    point: Mapping[str, Tensor]
    frames: Mapping[str, BlockFrame]
    choice: Choice
    likelihood: Likelihood
    link: Link = "probit"
    siblings: tuple[FunctionSpace, ...] = ()
    """Posteriors around other networks, averaged with this one: the weights of all members add up to 1."""
    folds: Tensor | None = None
    """Which sibling has not seen a training example."""

    def moments(self, model: nn.Module, inputs: Iterable[Batch]) -> list[Moments]:
        """Each member's normal outputs, and those of the loose posterior that scores unknown inputs. A batch at a time."""
        return _joined(self._moments(model, batch) for batch in inputs)

    def _moments(self, model: nn.Module, batch: Batch) -> list[Moments]:
        new, loose = self.jacobian(model, [batch]), self.choice.loose
        outside = None if loose is None else 0.0
        kept: Kept = {}
        found = [
            Moments(
                m.weight,
                *m.posterior.moments(new, kept),
                m.calibration,
                outside,
                self._usual(m.posterior, loose is None),
            )
            for m in self.choice.members
        ]
        if self.choice.networks is not None:
            found += _of_networks(self.choice.networks, model, batch)
        if loose is not None:
            found.append(Moments(0.0, *loose.moments(new, kept), Calibration(), 1.0, self._usual(loose, True)))
        for sibling in self.siblings:
            found += sibling._moments(model, batch)
        return found

    def _usual(self, posterior: FunctionPosterior, asked: bool) -> float | None:
        """A regression needs none: its score is the variance itself."""
        return posterior.usual if asked and not isinstance(self.likelihood, GaussianNoise) else None

    def jacobian(self, model: nn.Module, inputs: Iterable[Batch]) -> Jacobian:
        """Outputs at the point of linearisation, and how they depend on the weights."""
        return jacobian(model, self.blocks, self.point, self.frames, inputs)


def moments_of(networks: Networks, model: nn.Module, inputs: Iterable[Batch]) -> list[Moments]:
    """Each trained network's outputs, without any variance."""
    return _joined(list(_of_networks(networks, model, batch)) for batch in inputs)


def _joined(batches: Iterable[list[Moments]]) -> list[Moments]:
    """The moments of several batches as those of one."""
    return [
        replace(parts[0], mean=torch.cat([m.mean for m in parts]), covariance=torch.cat([m.covariance for m in parts]))
        for parts in zip(*batches, strict=True)
    ]


def _of_networks(networks: Networks, model: nn.Module, batch: Batch) -> Iterator[Moments]:
    """Outputs without any variance. They say nothing of inputs unlike all others: that is left to the posteriors."""
    for share, weights in networks.weights:
        mean = outputs_at(model, weights, batch).double()
        certain = mean.new_zeros(*mean.shape, mean.shape[1])
        yield Moments(networks.weight * share, mean, certain, networks.calibration, in_unknown=0.0)
