"""The strength of a prior, and the width of the predictive, from the training examples alone.

Strengths of a declared grid are scored by leave-one-out in closed form. The best of each share of the source are refitted fold by
fold, which is exact, and averaged by how well they predict what they had not seen: few examples cannot tell them apart, and an
average does not have to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import GaussianNoise, Likelihood
from posterity.data.leave_out import LeaveOut
from posterity.errors import DidNotConverge, InconsistentPosterior
from posterity.kernel.kernels import FLOORS, HEADS, SHARES, SharedKernel, Strength
from posterity.kernel.latent import Link
from posterity.kernel.left_out import Calibration, LeaveOneOut
from posterity.kernel.linearised import FunctionPosterior, LinearisedNetwork, StrengthChoice, StrengthMember
from posterity.kernel.variational import Inference, VariationalGaussian, infer

Criterion = Literal["loo", "elbo", "evidence"]
TEMPERATURES = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Of the probabilities. Below one they would be sharper than the network's own, which overfits few examples."""
TAUS = (0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Multiples of the posterior covariance; 0 is the network at its mode."""
UNJUDGED = (0.4, 1.0)
"""Temperatures of a new head that nothing was left out of, in equal parts: after a good source it is surer than this strength
says (.55 would be best), after another as sure (.7 to 1.5; digits and letters of MNIST and NotMNIST, halves of their classes)."""
MEMBERS = 4
"""The most posteriors of an average: each costs its own kernel at every prediction."""
ALIKE = 0.02
"""Nats that predictions of left-out examples differ by, on average, between posteriors that count as one."""
NEGLIGIBLE = 0.03
"""A member of less weight than this changes no prediction worth its price."""
RESAMPLED = 500
"""Draws of the Bayesian bootstrap behind the weights of an average."""
TYPICAL, FAR = 30.0, (1e-3, 1e4)
"""The least mean variance of outputs before any data in the middle of a grid that moves, and where the usual grid will do."""
UNITS = tuple(range(-12, 13))
"""Powers of ten that a grid may be multiplied by: finitely many, which certificates pay for."""
FAR_FLOORS = tuple(10.0**k for k in range(-8, 9))
FAR_HEADS = tuple(float(f"{digit}e{k}") for k in range(-8, 9) for digit in (1, 3))
"""Grids that move are wide: no one has tried where their middle is. What ends a search there is a belief about strengths."""
SPREAD = 2.0
"""Of that belief: powers of ten in a standard deviation of a log-normal distribution around the middle of the grid. Where all
left-out examples are separated, a weaker prior looks better without end."""


def unit(linearised: LinearisedNetwork, share: float, *, head: bool = False, always: bool = False) -> float:
    """What a grid of strengths is multiplied by, a power of ten: under a unit prior outputs of a large network vary by thousands.

    It is 1 where the mean variance of outputs under a unit prior (share · source + 1, or a head's alone) is anything usual,
    unless grids are to move `always`. Only a new head's grids move; no label is looked at.
    """
    kernel = linearised.kernel
    if not isinstance(kernel, SharedKernel):
        return 1.0
    size = _size(linearised, Strength(share, float("inf"), 1.0) if head else Strength(share, 1.0, float("inf")))
    return _power(size) if always or not FAR[0] <= size <= FAR[1] else 1.0


def _size(linearised: LinearisedNetwork, strength: Strength) -> float:
    """The mean variance of outputs before any data."""
    kernel, train = linearised.kernel, linearised.train
    own = kernel.diagonal(kernel.own(train, strength), torch.arange(train.count))
    return float((own if own.ndim == 1 else own.diagonal(dim1=-2, dim2=-1)).mean())


def _power(size: float) -> float:
    """The power of ten that brings a variance of outputs to between `TYPICAL` and ten times that."""
    if not 0 < size < float("inf"):
        return 1.0
    return 10.0 ** min(max(math.floor(math.log10(size / TYPICAL)), UNITS[0]), UNITS[-1])


def choose(
    linearised: LinearisedNetwork,
    criterion: Criterion = "loo",
    leave_out: LeaveOut | None = None,
    link: Link = "probit",
    shares: Iterable[float] | None = None,
    inference: Inference | None = None,
    still: bool = True,
) -> StrengthChoice:
    """The average of the best strengths, each with its own (τ, T), by predictions of left-out examples.

    `leave_out` says which examples are left out together; None leaves out by classes alone. `shares` restricts the grid; (0.0,)
    is the isotropic prior. "evidence" and "elbo" take the one strength of greatest (bound on the) marginal likelihood, as it is.
    `still` says whether a new head on layers that stay as they are is among the candidates.
    """
    if criterion == "elbo":
        inference = inference if isinstance(inference, VariationalGaussian) else VariationalGaussian()
    leave_out = leave_out or LeaveOut.of(linearised.targets)
    if isinstance(inference, VariationalGaussian) and leave_out.groups is not None and criterion == "loo":
        raise ValueError(
            "groups= are left out together by inference=pt.kernel.Laplace() only; Variational() leaves out one by one."
        )
    kernel = linearised.kernel
    all_shares = tuple(shares) if shares is not None else (SHARES if kernel.learned else (0.0,))
    heads = HEADS if isinstance(kernel, SharedKernel) else (1.0,)
    search = _StrengthSearch(linearised, criterion, leave_out, link, all_shares, heads, inference)
    if criterion == "loo" and not len(search.judged):
        return search.unjudged()
    # One a share: neighbours on the grid are almost the same posterior, and would crowd the others out.
    found = [search.climb(share) for share in all_shares] + ([search.head_alone()] if still and len(heads) > 1 else [])
    scored = sorted((m for m in found if m is not None), key=lambda m: m.nll)
    strengths = len(all_shares) * len(search.floors) * len(search.heads) + (len(search.heads) if len(heads) > 1 else 0)
    strengths *= len(UNITS) ** 2 if search.moved else 1
    options = strengths * search.widths
    if not scored:
        raise InconsistentPosterior(
            "no strength of the grid gives a posterior that is consistent with the data: look for constant or repeated inputs."
        )
    if criterion != "loo":
        return StrengthChoice((scored[0],), strengths, criterion, strengths)
    members = averaged(_distinct(scored), search.together)[:MEMBERS]
    if not isinstance(inference, VariationalGaussian):  # whose refits would cost as much as all the rest
        members = averaged([search.refit(member) for member in members], search.together)
    return StrengthChoice(members, options, criterion, strengths, search.for_mode())


class _StrengthSearch:
    """Scores of strengths, each computed once."""

    def __init__(
        self,
        of: LinearisedNetwork,
        criterion: Criterion,
        leave_out: LeaveOut,
        link: Link,
        shares: tuple[float, ...],
        heads: tuple[float, ...],
        inference: Inference | None,
    ) -> None:
        self.of, self.criterion, self.link = of, criterion, link
        self.inference, self.new_head = inference, isinstance(of.kernel, SharedKernel)
        self.folds, self.judged, self.together = leave_out.folds, leave_out.judged, leave_out.together
        self.lots = leave_out.groups if isinstance(inference, VariationalGaussian) else leave_out.lots(of.classes)
        self.seen: dict[Strength, StrengthMember | None] = {}
        self.modes: dict[tuple[float, ...], Tensor] = {}  # outputs there, by where the strength is
        self.widths = 1
        self.at_mode: dict[Strength, float] = {}
        self.moved = any(u != 1 for u in (unit(of, 0.0, head=True), *(unit(of, share) for share in shares)))
        """Whether outputs are of an unusual size under any prior: then all grids move to theirs, and are wide."""
        self.head_unit = unit(of, 0.0, head=True, always=self.moved)
        self.units = {share: unit(of, share, always=self.moved) for share in shares}
        self.floors, self.heads = (FAR_FLOORS, FAR_HEADS) if self.moved else (FLOORS, heads)

    def climb(self, share: float) -> StrengthMember | None:
        """The best floor and head for a share."""
        return self._best(self.floors, lambda floor, head: self._at(share, floor, head))

    def unjudged(self) -> StrengthChoice:
        """One example a class: nothing can be left out, and predictions are those of the mode under a strength set in advance.

        The source and the floor count alike, in the unit that leaves outputs a usual variance before any data; no label is
        looked at. The evidence is no judge either: it prefers priors that are too firm to learn anything.
        """
        of_head = _power(_size(self.of, Strength(0.0, float("inf"), 1.0))) if self.new_head else 1.0
        equal = Strength(float(max(self.units) > 0), 1.0, float("inf") if self.new_head else 1.0)
        of_body = _power(_size(self.of, equal))
        try:
            posterior = self._posterior(Strength(equal.share * of_body, of_body, of_head))
        except (DidNotConverge, InconsistentPosterior) as error:
            raise InconsistentPosterior(
                "no posterior fits one example a class: look for constant or repeated inputs."
            ) from error
        options = len(UNITS) ** 2 if self.new_head else len(UNITS)
        soft = UNJUDGED if self.new_head else (1.0,)
        members = tuple(StrengthMember(1 / len(soft), posterior, Calibration(0.0, t), math.nan) for t in soft)
        return StrengthChoice(members, options, "fixed", options)

    def _at(self, share: float, floor: float, head: float) -> Strength:
        """A strength with these numbers, which are in units of the outputs' size."""
        of_body = self.units[share]
        return Strength(share * of_body, floor * of_body, head * self.head_unit)

    def head_alone(self) -> StrengthMember | None:
        """A new head on features that stay as they are."""
        if self.moved:
            return self._best((1.0,), lambda _, head: Strength(0.0, float("inf"), head * self.head_unit))
        scores = [self._score(Strength(0.0, float("inf"), head)) for head in self.heads]
        return min((m for m in scores if m is not None), key=lambda m: m.nll, default=None)

    def _best(self, floors: Sequence[float], at: Callable[[float, float], Strength]) -> StrengthMember | None:
        """From neighbour to neighbour on the grid of floors and heads."""
        here = floors.index(1.0), self.heads.index(1.0)
        while True:
            i, j = here
            near = [(i, j), (i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
            inside = [(a, b) for a, b in near if 0 <= a < len(floors) and 0 <= b < len(self.heads)]
            scores = {(a, b): self._score(at(floors[a], self.heads[b])) for a, b in inside}
            members = {place: member for place, member in scores.items() if member is not None}
            if not members:
                return None
            known = {
                (a, b): member.nll + self._unlikely(floors[a], self.heads[b]) for (a, b), member in members.items()
            }
            best = min(known, key=lambda place: known[place])
            if best == here or (here in known and known[best] > known[here] - 1e-4):
                return members[best]
            here = best

    def _unlikely(self, floor: float, head: float) -> float:
        """Minus the log density of what is believed of strengths, beside a score: nats an example, or in all."""
        if not self.moved:
            return 0.0
        steps = sum((math.log10(s) / SPREAD) ** 2 for s in (floor, head))
        return 0.5 * steps / (len(self.of.targets) if self.criterion == "loo" else 1)

    def _score(self, strength: Strength) -> StrengthMember | None:
        if strength not in self.seen:
            self.seen[strength] = self._computed(strength)
        return self.seen[strength]

    def _computed(self, strength: Strength) -> StrengthMember | None:
        try:
            posterior = self._posterior(strength)
            if self.criterion != "loo":
                return StrengthMember(1.0, posterior, Calibration(), -posterior.log_evidence)
            left_out = posterior.left_out(self.lots)
        except (DidNotConverge, InconsistentPosterior):
            # A kernel too large for its numbers: this strength is no candidate, its neighbours are.
            return None
        left_out, targets = left_out.part(self.judged), self.of.targets[self.judged]
        self.at_mode[strength] = left_out.nll(self.of.likelihood, targets, Calibration(0.0, 1.0), self.link)
        return self._member(posterior, left_out)

    def _posterior(self, strength: Strength) -> FunctionPosterior:
        if isinstance(self.inference, VariationalGaussian):
            return infer(self.of, strength, self.inference)
        # From the mode of the strength most like this one Newton's method has less far to go.
        here = place(strength)
        near = min(self.modes, key=lambda other: math.dist(here, other), default=None)
        posterior = self.of.posterior(strength, None if near is None else self.modes[near])
        self.modes[here] = posterior.latent.outputs
        return posterior

    def _member(self, posterior: FunctionPosterior, left_out: LeaveOneOut) -> StrengthMember:
        targets = self.of.targets[self.judged]
        calibration, nll, self.widths = calibrate(left_out, self.of.likelihood, targets, self.link)
        log_probs = left_out.log_probs(self.of.likelihood, targets, calibration, self.link)
        return StrengthMember(1.0, posterior, calibration, nll, log_probs)

    def for_mode(self) -> Strength | None:
        """The best of the strengths under which layers below the head may change."""
        free = {s: nll for s, nll in self.at_mode.items() if s.floor < float("inf")}
        return min(free, key=lambda s: free[s], default=None)

    def refit(self, member: StrengthMember) -> StrengthMember:
        """The same posterior with its width and score from exact refits."""
        try:
            left_out = member.posterior.refitted(self.folds)
        except DidNotConverge:
            return member
        return self._member(member.posterior, left_out.part(self.judged))


def place(strength: Strength) -> tuple[float, ...]:
    """A strength by the logarithms of its numbers, nothing and infinity as very small and very large ones."""
    return tuple(math.log(min(max(x, 1e-30), 1e30)) for x in (strength.share, strength.floor, strength.head))


def calibrate(
    left_out: LeaveOneOut,
    likelihood: Likelihood,
    targets: Tensor,
    kind: Link = "probit",
    taus: Sequence[float] = TAUS,
    temperatures: Sequence[float] = TEMPERATURES,
) -> tuple[Calibration, float, int]:
    """The (τ, T) of least leave-one-out NLL on a grid declared in advance, that NLL, and the size of the grid."""
    if isinstance(likelihood, GaussianNoise):
        temperatures = (1.0,)
    grid = [Calibration(tau, t) for tau in taus for t in temperatures]
    scores = left_out.nlls(likelihood, targets, grid, kind)
    least = min(scores)
    return grid[scores.index(least)], least, len(grid)


def _distinct(members: Sequence[StrengthMember]) -> list[StrengthMember]:
    """The members, best first, without those that say the same as a better one: a floor that holds everything, say.

    Counted one by one, copies of one posterior would outvote all others.
    """
    kept: list[StrengthMember] = []
    for member in members:
        assert member.log_probs is not None
        if all(float((member.log_probs - other.log_probs).abs().mean()) >= ALIKE for other in kept):  # type: ignore[operator]
            kept.append(member)
    return kept


def averaged(members: Sequence[StrengthMember], groups: Tensor | None = None) -> tuple[StrengthMember, ...]:
    """The members with weights ∝ exp(−total NLL of what was left out), negligible ones dropped, the largest first.

    The total is that of resampled examples, and weights are averaged over resamples (pseudo-BMA+, Yao et al. 2018): what a
    handful of examples decides is not certain. Examples of one group are drawn, and counted, as one.
    """
    scores = torch.stack([m.log_probs.double() for m in members if m.log_probs is not None])
    weights = (_resampled(scores.shape[1], groups).to(scores) @ scores.mT).softmax(1).mean(0)
    kept = [(float(w), m) for w, m in zip(weights, members, strict=True) if w >= min(NEGLIGIBLE, float(weights.max()))]
    total = sum(w for w, _ in kept)
    return tuple(replace(m, weight=w / total) for w, m in sorted(kept, key=lambda pair: -pair[0]))


def _resampled(count: int, groups: Tensor | None) -> Float[Tensor, "draws n"]:
    """How often each example counts, over draws of the Bayesian bootstrap. A group is drawn, and counts, as one example."""
    labels = torch.arange(count) if groups is None else torch.unique(groups.cpu(), return_inverse=True)[1]
    sizes = labels.bincount()
    draw = torch.rand(RESAMPLED, len(sizes), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shares = -draw.clamp_min(1e-300).log()
    shares = shares / shares.sum(1, keepdim=True) * len(sizes)
    return (shares / sizes)[:, labels]
