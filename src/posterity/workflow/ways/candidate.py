"""A candidate: whatever predicts and can be judged by examples that it has left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import Curvature, Estimator, GaussianNoise, Likelihood
from posterity.data import Data
from posterity.data.leave_out import LeaveOut
from posterity.errors import WrongChoice
from posterity.gaussian import Gaussian
from posterity.kernel import Inference, LeaveOneOut, Link
from posterity.kernel.latent import LINKS
from posterity.kernel.stacking import stacked
from posterity.laplace import History, Scales
from posterity.novelty import Reference
from posterity.predictive.predictor import Predictor, Stack
from posterity.predictive.sets import LeftOutScores
from posterity.workflow.recipe import Recipe, Stacking

Criterion = Literal["loo", "elbo", "evidence", "bayes", "catoni", "mcallester"]
CRITERIA: tuple[Criterion, ...] = ("loo", "elbo", "evidence", "bayes", "catoni", "mcallester")
IN_FUNCTION_SPACE: tuple[Criterion, ...] = CRITERIA[:3]
"""Those by which an exact posterior's strength is chosen."""


@dataclass(frozen=True, eq=False)
class Options:
    """What a user asked for, beside the problem itself."""

    scales: Criterion | Scales = "loo"
    link: Link = "probit"
    inference: Inference | None = None
    shares: Sequence[float] | None = None
    """Of the source, to choose from; (0.0,) is the isotropic prior around the same mean."""
    head_alone: bool = True
    """Whether a new head on layers that stay as they are is a candidate."""
    estimator: Estimator | None = None
    precision: float | None = None
    """Of the prior of a trained network; None: chosen."""
    validation: Data | None = None
    """Examples that were not trained on, to calibrate a trained network with."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Options of `pt.train`, as the user gave them."""
    trains: bool = True
    """Whether networks are trained beside an exact posterior."""
    generator: torch.Generator | None = None
    progress: bool = True
    candidates: Literal["network", "all"] = "network"
    """Whether models of a table's inputs are candidates too."""
    recipe: Recipe = Recipe()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        # Before anything is trained.
        if self.link not in LINKS:
            raise ValueError(f'link is one of {", ".join(LINKS)}, not "{self.link}"')
        if self.candidates not in ("network", "all"):
            raise WrongChoice(f'candidates is "network" or "all", not {self.candidates!r}.')
        if not isinstance(self.recipe, Recipe):
            raise WrongChoice(
                f"recipe is a {type(self.recipe).__name__}: give a posterity.workflow.recipe.Recipe(...)."
            )
        if not isinstance(self.training, Mapping):
            raise WrongChoice(
                f'training is a {type(self.training).__name__}: give its options by name, {{"epochs": 5}}.'
            )

    @property
    def criterion(self) -> Criterion:
        """How the strength of the prior is chosen; numbers that are given leave nothing to choose."""
        return "bayes" if isinstance(self.scales, Scales) else self.scales

    @property
    def by_bound(self) -> bool:
        """Whether the Gaussian of least bound estimate predicts, as it is."""
        return self.criterion in ("catoni", "mcallester")


@dataclass(frozen=True, eq=False)
class Candidate:
    """What one way made. Its weights are in the network itself."""

    prior: Gaussian
    """As it was used, its strength chosen."""
    likelihood: Likelihood
    """With the noise that was learned."""
    predictor: Predictor | None = None
    """None: the Gaussian over weights, which is made after it, predicts."""
    probs: Float[Tensor, " m"] | None = None
    """Of left-out targets."""
    moments: Float[Tensor, "2 m"] | None = None
    """Means and variances of left-out numbers."""
    history: History | None = None
    part: Data | None = None
    """The examples that were learned from; None: all."""
    held: Data | None = None
    """Those that were held out, to stop training and to calibrate."""
    reference: Reference | None = None
    """What unknown inputs are found by."""
    carried: Reference | None = None
    """The same for the Gaussian over weights, whose network gives other features or outputs; None: it is the same."""
    deviations: Float[Tensor, " m"] | None = None
    """Of left-out numbers: |target − mean| in standard deviations."""


def stack(
    ways: Sequence[str], candidates: Sequence[Candidate], leave_out: LeaveOut | None, stacking: Stacking
) -> Stack:
    """All candidates, weighed by what they say of left-out examples beside what is believed of them.

    Where no example could be left out, the beliefs alone are the weights. `leave_out` says which examples count as one.
    """
    counts = torch.tensor([stacking.counts[way] for way in ways], dtype=torch.float64)
    known = [c.probs for c in candidates if c.probs is not None and len(c.probs)]
    scores, each = counts.new_zeros(len(candidates), 0), None
    if len(known) == len(candidates):
        scores = torch.stack([p.double().cpu().clamp_min(torch.finfo(torch.float64).tiny).log() for p in known])
        if leave_out is not None and leave_out.each is not None:
            each = leave_out.each[leave_out.judged].cpu()
    weights = stacked(scores, counts, each)
    kept = torch.where(weights < stacking.least, 0.0, weights)
    shares = (kept / kept.sum()).tolist()
    said = ", ".join(f"{way} {w:.2f}" for way, w in zip(ways, shares, strict=True))
    parts = [(w, cast(Predictor, one.predictor)) for w, one in zip(shares, candidates, strict=True)]
    # The first scores unknown inputs: it stays, whatever its weight.
    return Stack(tuple((w, part) for i, (w, part) in enumerate(parts) if w or not i), said)


def probs_of(stack: Stack, candidates: Sequence[Candidate]) -> Tensor:
    """The probability that a stack gave to left-out targets; empty where a candidate said nothing of them."""
    parts = {id(part): weight for weight, part in stack.parts}
    said = [(parts.get(id(c.predictor), 0.0), c.probs) for c in candidates]
    known = [weight * probs.double().cpu() for weight, probs in said if probs is not None]
    return torch.stack(known).sum(0) if len(known) == len(said) else torch.empty(0)


@dataclass(frozen=True, eq=False)
class FitParts:
    """All that a fit is made of, once there is a Gaussian over weights."""

    predictor: Predictor
    prior: Gaussian
    posterior: Gaussian
    curvature: Curvature
    scales: Scales = Scales()  # noqa: RUF009 (frozen)
    history: History | None = None
    reference: Reference | None = None
    carried: Reference | None = None
    left_out: LeftOutScores | None = None


def sets_scores(
    probs: Float[Tensor, " m"] | None,
    deviations: Float[Tensor, " m"] | None,
    likelihood: Likelihood,
    leave_out: LeaveOut,
) -> LeftOutScores | None:
    """What sets and intervals are made from."""
    values = deviations
    if probs is not None and not isinstance(likelihood, GaussianNoise):
        values = 1 - probs
    return None if values is None or not len(values) else LeftOutScores.of(values, leave_out.together)


def deviations_of(left_out: LeaveOneOut, likelihood: GaussianNoise, targets: Tensor, tau: float) -> Tensor | None:
    """Deviations of targets from predicted means, in predicted standard deviations."""
    mean, own, noise = likelihood.predicted(left_out.mean, tau * left_out.covariance.diagonal(dim1=-2, dim2=-1))
    if mean.shape[1] != 1:
        return None
    return ((targets.to(mean).view_as(mean) - mean).abs() / (own + noise).sqrt()).flatten()


def deviations_from(moments: Float[Tensor, "2 m"], targets: Tensor) -> Tensor | None:
    """Deviations from the means and variances of left-out predictions."""
    if targets.ndim > 1 and targets.shape[1] != 1:
        return None
    mean, variance = moments
    return (targets.to(mean).flatten() - mean).abs() / variance.sqrt()
