"""The strength of a prior, and the width of the predictive, from the training examples alone.

Every strength of a declared grid is scored by leave-one-out in closed form. The best of each family (one for each share of the
source) are refitted fold by fold, which is exact, and averaged by how well they predict what they had not seen: few examples
cannot tell neighbours apart, and an average does not have to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from posterity.errors import DidNotConverge, Inconsistent
from posterity.kernel.kernels import Shared
from posterity.kernel.leave_one_out import Calibration, calibrate
from posterity.kernel.linearised import FunctionPosterior, Linearised
from posterity.kernel.links import Link
from posterity.kernel.strength import FLOORS, HEADS, SHARES, Strength

Criterion = Literal["loo", "evidence"]
FOLDS = 10
NEGLIGIBLE = 0.03
"""A member of less weight than this changes no prediction worth its price."""


@dataclass(frozen=True, eq=False)
class Member:
    """One posterior of an average."""

    weight: float
    posterior: FunctionPosterior
    calibration: Calibration
    nll: float
    """Mean NLL in nats of examples that were left out."""


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
    """The best with the loosest floor instead of its own, for scores of unknown inputs. Leave-one-out sees known classes alone:
    where the prior's mean serves them well it may hold the prior so firmly that nothing ever seems strange."""

    @property
    def best(self) -> Member:
        """The member of greatest weight."""
        return self.members[0]


def choose(
    linearised: Linearised,
    criterion: Criterion = "loo",
    groups: Int[Tensor, " n"] | None = None,
    link: Link = "probit",
    shares: Iterable[float] | None = None,
) -> Choice:
    """The average of the best strengths, each with its own (τ, T), by predictions of left-out examples.

    `groups` says which examples belong together (windows of one recording): they are left out together. `shares` restricts
    the grid; (0.0,) is the isotropic prior.
    """
    kernel = linearised.kernel
    all_shares = tuple(shares) if shares is not None else (SHARES if kernel.learned else (0.0,))
    heads = HEADS if isinstance(kernel, Shared) else (1.0,)
    search = _Search(linearised, criterion, groups, link, heads)
    found = [search.climb(share) for share in all_shares] + ([search.head_alone()] if len(heads) > 1 else [])
    scored = sorted((m for m in found if m is not None), key=lambda m: m.nll)
    strengths = len(all_shares) * len(FLOORS) * len(heads) + (len(heads) if len(heads) > 1 else 0)
    options = strengths * search.widths
    if not scored:
        raise Inconsistent(
            "no strength of the grid gives a posterior that is consistent with the data: look for constant or repeated inputs."
        )
    if criterion == "evidence":
        return Choice((scored[0],), options, criterion, strengths)
    members = _averaged([search.refit(member) for member in scored], len(linearised.targets), groups)
    loose = search.loosened(members[0].posterior) if len(heads) == 1 else None
    return Choice(members, options, criterion, strengths, search.for_mode(), loose)


class _Search:
    """Scores of strengths, each computed once."""

    def __init__(
        self, of: Linearised, criterion: Criterion, groups: Tensor | None, link: Link, heads: tuple[float, ...]
    ) -> None:
        self.of, self.criterion, self.groups, self.link, self.heads = of, criterion, groups, link, heads
        self.seen: dict[Strength, Member | None] = {}
        self.widths = 1
        self.at_mode: dict[Strength, float] = {}
        self.folds = folds_of(of.targets, groups)

    def climb(self, share: float) -> Member | None:
        """The best floor and head for a share, from neighbour to neighbour on the grid."""
        here = (FLOORS.index(1.0), len(self.heads) // 2)
        while True:
            i, j = here
            near = [(i, j), (i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
            inside = [(a, b) for a, b in near if 0 <= a < len(FLOORS) and 0 <= b < len(self.heads)]
            scores = {place: self._score(Strength(share, FLOORS[place[0]], self.heads[place[1]])) for place in inside}
            known = {place: member for place, member in scores.items() if member is not None}
            if not known:
                return None
            best = min(known, key=lambda place: known[place].nll)
            if best == here or (here in known and known[best].nll > known[here].nll - 1e-4):
                return known[best]
            here = best

    def head_alone(self) -> Member | None:
        """A new head on features that stay as they are."""
        scores = [self._score(Strength(0.0, float("inf"), head)) for head in self.heads]
        return min((m for m in scores if m is not None), key=lambda m: m.nll, default=None)

    def _score(self, strength: Strength) -> Member | None:
        if strength not in self.seen:
            self.seen[strength] = self._computed(strength)
        return self.seen[strength]

    def _computed(self, strength: Strength) -> Member | None:
        try:
            posterior = self.of.posterior(strength)
            if self.criterion == "evidence":
                return Member(1.0, posterior, Calibration(), -posterior.log_evidence)
            left_out = posterior.left_out(self.groups)
        except (DidNotConverge, Inconsistent):
            # A kernel too large for its numbers: this strength is no candidate, its neighbours are.
            return None
        calibration, nll, self.widths = calibrate(left_out, self.of.likelihood, self.of.targets, self.link)
        self.at_mode[strength] = left_out.nll(self.of.likelihood, self.of.targets, Calibration(0.0, 1.0), self.link)
        return Member(1.0, posterior, calibration, nll)

    def for_mode(self) -> Strength | None:
        """Of all strengths looked at that leave the layers below the head free."""
        free = {s: nll for s, nll in self.at_mode.items() if s.floor < float("inf")}
        return min(free, key=lambda s: free[s], default=None)

    def loosened(self, posterior: FunctionPosterior) -> FunctionPosterior:
        """The same share of the source with the lowest floor that numbers allow."""
        strength = posterior.strength
        assert strength is not None
        for floor in FLOORS:
            if floor >= strength.floor:
                break
            try:
                return self.of.posterior(replace(strength, floor=floor))
            except (DidNotConverge, Inconsistent):
                continue
        return posterior

    def refit(self, member: Member) -> Member:
        """The same posterior with its width and score from exact refits."""
        try:
            left_out = member.posterior.refitted(self.folds)
        except DidNotConverge:
            return member
        calibration, nll, _ = calibrate(left_out, self.of.likelihood, self.of.targets, self.link)
        return Member(1.0, member.posterior, calibration, nll)


def _averaged(members: list[Member], count: int, groups: Tensor | None) -> tuple[Member, ...]:
    """Weights ∝ exp(−total NLL of what was left out), negligible ones dropped, the largest first.

    Examples of one group tell one story: the total counts groups, not their examples.
    """
    size = count if groups is None else len(groups.unique())
    weights = (-size * torch.tensor([m.nll for m in members], dtype=torch.float64)).softmax(0)
    kept = [(float(w), m) for w, m in zip(weights, members, strict=True) if w >= NEGLIGIBLE]
    total = sum(w for w, _ in kept)
    ordered = sorted(kept, key=lambda pair: -pair[0])
    return tuple(Member(w / total, m.posterior, m.calibration, m.nll) for w, m in ordered)


def folds_of(targets: Tensor, groups: Int[Tensor, " n"] | None = None, folds: int = FOLDS) -> Int[Tensor, " n"]:
    """Folds for refitting: whole groups, classes spread evenly, the same every time."""
    n = len(targets)
    labels = torch.arange(n) if groups is None else torch.unique(groups, return_inverse=True)[1]
    count = int(labels.max()) + 1
    first = torch.stack([(labels == g).nonzero()[0, 0] for g in range(count)]) if groups is not None else labels
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    if not targets.is_floating_point() and targets.ndim == 1:
        shuffled = shuffled[targets.cpu()[first[shuffled]].argsort(stable=True)]
    fold = torch.empty(count, dtype=torch.int64)
    fold[shuffled] = torch.arange(count) % min(folds, count)
    return fold[labels]
