"""Does the order of the data betray that examples belong together, such as windows of one recording?

For independent examples it is chance whether an example's nearest neighbours in feature space also stand next to it in the data.
For windows of recordings, frames of a film or rows of one patient they do, again and again. Where the first windows of all
recordings come first, then the second ones, or where copies were stacked, they stand the same number of places apart. Both are
looked at within a class: data that is sorted by class is no sign of dependence.
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
"""Beyond what permutations of the order show: once in a billion for normal counts, of which there are four."""
EXCESS, EXACTLY = 0.05, 0.02
"""The least excess over chance that is worth a word: of neighbours within so many places, and exactly so many places apart."""
LOOKED_AT = 2_000
"""Examples, the first ones: neighbours in the order must stay neighbours."""


@dataclass(frozen=True)
class Dependence:
    """Nearest neighbours that are neighbours in the order of the data far more often than a permutation test allows."""

    share: float
    """Of nearest neighbours that stand within `apart` places, or exactly so far apart."""
    chance: float
    """The same, if the order meant nothing."""
    apart: int
    exactly: bool
    effective: int
    """About how many independent examples there are: what hangs together by such neighbours counts once."""
    count: int
    """Examples that were looked at."""

    def __str__(self) -> str:
        places = f"exactly {self.apart} places apart" if self.exactly else f"within {self.apart} places of each other"
        return (
            f"{100 * self.share:.0f} % of nearest neighbours stand {places} in the data, {100 * self.chance:.0f} % would by "
            f"chance: these look like windows of one recording, or copies (about {self.effective:,} independent among "
            f"{self.count:,})"
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
    members = [rows for rows in ((classes == c).nonzero()[:, 0] for c in classes.unique()) if len(rows) > 8]
    if not members or not features.shape[1]:
        return None
    pairs = []
    for rows in members:
        distances = torch.cdist(features[rows], features[rows]).fill_diagonal_(torch.inf)
        nearest = distances.topk(NEIGHBOURS, largest=False).indices
        pairs.append(torch.stack((rows.repeat_interleave(NEIGHBOURS), rows[nearest].flatten())))
    pair, dice = torch.cat(pairs, 1), torch.Generator().manual_seed(0)
    # First the order as it is, then others in which every class keeps its places.
    place = torch.arange(n).repeat(1 + PERMUTATIONS, 1)
    for order in place[1:]:
        for rows in members:
            order[rows] = rows[torch.randperm(len(rows), generator=dice)]
    lags = (place[:, pair[0]] - place[:, pair[1]]).abs()
    often = torch.stack([lag.bincount().max() for lag in lags]) / lags.shape[1]
    looks = [(apart, False, (lags <= apart).double().mean(1)) for apart in APART]
    found = None
    for apart, exactly, shares in [(int(lags[0].bincount().argmax()), True, often), *looks]:
        share, chance, spread = float(shares[0]), float(shares[1:].mean()), float(shares[1:].std()) + 1 / lags.shape[1]
        if share - chance > max(EXACTLY if exactly else EXCESS, DEVIATIONS * spread):
            linked = pair[:, lags[0] % apart == 0 if exactly else lags[0] <= apart]
            found = Dependence(share, chance, apart, exactly, _components(linked, n), n)
    return found


def _components(linked: Tensor, n: int) -> int:
    label, before = torch.arange(n), None
    while before is None or not torch.equal(label, before):
        before = label.clone()
        for a, b in (linked, linked.flip(0)):
            label.scatter_reduce_(0, a, label[b], "amin")
    return int(label.unique().numel())
