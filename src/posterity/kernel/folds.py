"""Which training examples are left out together, so that the rest can be judged by them.

Every class has to lose alike. Were one of a class's two examples left out alone, all others would keep theirs: the class would
be half as frequent among the rest, its left-out example would look strange, and the network as if it had to be unsure of
everything. Few examples are therefore left out one of every class at a time. An example that is alone in its class is never left
out: nothing of its class would remain to predict it by.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

FOLDS = 5
STAYS = -1
"""The fold of an example that is never left out."""
SIDE = 1000
"""The most outputs of examples that are left out together in closed form: one dense solve."""


def folds_of(targets: Tensor, groups: Int[Tensor, " n"] | None = None, folds: int = FOLDS) -> Int[Tensor, " n"]:
    """Folds for refitting: whole groups, classes spread evenly, the same every time.

    No more folds than the largest class has groups (or examples, without groups): each fold then leaves out some of every class.
    Where there is one group (or example) alone, it stays, whatever its targets are.
    """
    units = torch.arange(len(targets)) if groups is None else numbered(groups.cpu())
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


def judged(
    folds: Int[Tensor, " n"], groups: Int[Tensor, " n"] | None = None
) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"] | None]:
    """The examples that are left out at all, and their groups."""
    index = (folds != STAYS).nonzero().flatten()
    return index, None if groups is None else groups.to(index.device)[index]


def lots_of(folds: Int[Tensor, " n"], outputs: int, groups: Int[Tensor, " n"] | None = None) -> Tensor | None:
    """What is left out at once in closed form: groups, or None for one example at a time, but whole folds where they are few.

    With five examples a class or more, one that is missing hardly changes how frequent its class is.
    """
    few = int(folds.max()) + 1 < FOLDS
    largest = int(folds[folds != STAYS].bincount().max()) if bool((folds != STAYS).any()) else 0
    if few and largest * outputs <= SIDE:
        return folds
    return None if groups is None else numbered(groups)
