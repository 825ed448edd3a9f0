"""Does the order of the data betray that examples belong together, such as windows of one recording?

For independent examples it is chance whether an example's nearest neighbours in feature space also stand next to it in the data.
For windows of recordings, frames of a film or rows of one patient they do, again and again. Both are looked at within a class:
data that is sorted by class is no sign of dependence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

NEIGHBOURS = 3
APART = (1, 4, 16)
"""How many places apart counts as next to each other."""
PERMUTATIONS = 200
DEVIATIONS = 6.0
"""Beyond what permutations of the order show: once in a billion for normal counts, of which there are three."""
EXCESS = 0.05
"""The least excess over chance that is worth a word."""
LOOKED_AT = 2_000
"""Examples, the first ones: neighbours in the order must stay neighbours."""


@dataclass(frozen=True)
class Dependence:
    """Nearest neighbours that are neighbours in the order of the data far more often than a permutation test allows."""

    share: float
    """Of nearest neighbours that stand within `apart` places."""
    chance: float
    """The same, if the order meant nothing."""
    apart: int
    effective: int
    """About how many independent examples there are: what hangs together by such neighbours counts once."""
    count: int
    """Examples that were looked at."""

    def __str__(self) -> str:
        return (
            f"{100 * self.share:.0f} % of nearest neighbours stand within {self.apart} places of each other in the data, "
            f"{100 * self.chance:.0f} % would by chance: these look like windows of one recording "
            f"(about {self.effective:,} independent among {self.count:,})"
        )


def dependence(features: Float[Tensor, "n d"], targets: Tensor | None = None) -> Dependence | None:
    """What the order betrays, or None where a permutation test finds nothing.

    Args:
        features: one row for each example in the order of the data, on one scale.
        targets: the classes; without whole numbers all examples are compared.
    """
    features = features[:LOOKED_AT]
    n = len(features)
    classes = torch.zeros(n, dtype=torch.int64)
    if targets is not None and targets.ndim == 1 and not targets.is_floating_point():
        classes = targets[:LOOKED_AT].cpu().long()
    pairs, ranks = [], torch.zeros(n, dtype=torch.int64)
    members = [(classes == c).nonzero()[:, 0] for c in classes.unique()]
    members = [rows for rows in members if len(rows) > 8]
    if not members or not features.shape[1]:
        return None
    for rows in members:
        ranks[rows] = torch.arange(len(rows))
        distances = torch.cdist(features[rows], features[rows]).fill_diagonal_(torch.inf)
        nearest = distances.topk(NEIGHBOURS, largest=False).indices
        pairs.append(torch.stack((rows.repeat_interleave(NEIGHBOURS), rows[nearest].flatten()), 1))
    pair = torch.cat(pairs)
    dice = torch.Generator().manual_seed(0)
    shuffled = torch.stack([_shuffled(members, n, dice) for _ in range(PERMUTATIONS)])
    found = None
    for apart in APART:
        seen = float(((ranks[pair[:, 0]] - ranks[pair[:, 1]]).abs() <= apart).double().mean())
        chance = ((shuffled[:, pair[:, 0]] - shuffled[:, pair[:, 1]]).abs() <= apart).double().mean(1)
        usual, spread = float(chance.mean()), float(chance.std()) + 1 / len(pair)
        if seen - usual > max(EXCESS, DEVIATIONS * spread):
            linked = pair[(ranks[pair[:, 0]] - ranks[pair[:, 1]]).abs() <= apart]
            found = Dependence(seen, usual, apart, _components(linked, n), n)
    return found


def _shuffled(members: list[Tensor], n: int, dice: torch.Generator) -> Tensor:
    ranks = torch.zeros(n, dtype=torch.int64)
    for rows in members:
        ranks[rows] = torch.randperm(len(rows), generator=dice)
    return ranks


def _components(linked: Tensor, n: int) -> int:
    label, before = torch.arange(n), None
    while before is None or not torch.equal(label, before):
        before = label.clone()
        for a, b in (linked.T, linked.T.flip(0)):
            label.scatter_reduce_(0, a, label[b], "amin")
    return int(label.unique().numel())
