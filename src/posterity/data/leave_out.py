"""Which training examples are left out together, so that what was learned from the rest can be judged by them.

Every class has to lose alike. Were one of a class's two examples left out alone, all others would keep theirs: the class would
be half as frequent among the rest, its left-out example would look unusual, and the network as if it had to be unsure of
everything. Few examples are therefore left out one of every class at a time. An example that is alone in its class is never left
out: nothing of its class would remain to predict it by.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.brief import brief

FOLDS = 5
STAYS = -1
"""The fold of an example that is never left out."""
SIDE = 1000
"""The most outputs of examples that are left out together in closed form: one dense solve."""


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """What is left out together: made once a fit, and used by everything that judges by left-out examples."""

    __repr__ = brief

    folds: Int[Tensor, " n"]
    """The fold of each example, for refitting; `STAYS` for those that are never left out."""
    groups: Int[Tensor, " n"] | None = None
    """Which examples belong together, as 0, 1, …; None where each is by itself."""

    @classmethod
    def of(cls, targets: Tensor, groups: Int[Tensor, " n"] | None = None, folds: int = FOLDS) -> LeaveOut:
        """Folds for refitting: whole groups, classes spread evenly, the same every time.

        No more folds than the largest class has groups (or examples, without groups): each fold then leaves out some of every
        class. Where there is one group (or example) alone, it stays, whatever its targets are.
        """
        own = None if groups is None else numbered(groups.to(targets.device))
        return cls(_folds_of(targets, None if own is None else own.cpu(), folds).to(targets.device), own)

    @property
    def judged(self) -> Int[Tensor, " m"]:
        """The examples that are left out at all."""
        return (self.folds != STAYS).nonzero().flatten()

    @property
    def together(self) -> Int[Tensor, " m"] | None:
        """The groups of the examples that are left out at all."""
        return None if self.groups is None else self.groups[self.judged]

    @property
    def each(self) -> Float[Tensor, " n"] | None:
        """How much each example counts: a group as much as an example by itself. None where they count alike."""
        if self.groups is None:
            return None
        return 1.0 / self.groups.bincount()[self.groups].double()

    @property
    def parts(self) -> list[int]:
        """The folds that are left out in turn."""
        return self.folds[self.judged].unique().tolist()

    @property
    def count(self) -> int:
        """How many independent judgements there are: groups, or examples, that are left out."""
        return len(self.judged) if self.together is None else len(self.together.unique())

    def split(self, fold: int) -> tuple[Int[Tensor, " kept"], Int[Tensor, " out"]]:
        """The examples that stay, and those that are left out."""
        return (self.folds != fold).nonzero().flatten(), (self.folds == fold).nonzero().flatten()

    def lots(self, outputs: int) -> Int[Tensor, " n"] | None:
        """What is left out at once in closed form: groups, or None for one example at a time, but whole folds where they are few.

        With five examples a class or more, one that is missing hardly changes how frequent its class is.
        """
        few = int(self.folds.max()) + 1 < FOLDS
        largest = int(self.folds[self.judged].bincount().max()) if len(self.judged) else 0
        return self.folds if few and largest * outputs <= SIDE else self.groups


def _folds_of(targets: Tensor, groups: Int[Tensor, " n"] | None, folds: int) -> Int[Tensor, " n"]:
    units = torch.arange(len(targets)) if groups is None else groups
    count = int(units.max()) + 1
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    fold = torch.full((count,), STAYS)
    if count == 1:
        return fold[units]
    if not targets.is_floating_point() and targets.ndim == 1:
        targets = targets.cpu().long()
        first = torch.full((count,), len(targets)).scatter_reduce_(0, units, torch.arange(len(targets)), "amin")
        classes = targets[first]
        order = order[classes[order].argsort(stable=True)]
        if torch.equal(classes[units], targets):  # else groups have examples of several classes
            sizes = classes.bincount()
            folds = min(folds, int(sizes.max()))
            order = order[sizes[classes[order]] > 1]
    fold[order] = torch.arange(len(order)) % min(folds, count)
    return fold[units]


def numbered(groups: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The same groups as 0, 1, …: a group that a user calls −1 is left out like any other."""
    return torch.unique(groups, return_inverse=True)[1]
