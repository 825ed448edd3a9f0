"""Near copies: examples of one class that are far closer to each other than different examples are.

Independent examples of a density in d dimensions have C(r) ∝ r^d pairs closer than r: between r and 3r there are 3^d − 1 ≥ 2
times as many as below r. Noisy copies leave a gap instead: many pairs below r, hardly any between r and 3r. That gap needs no
threshold of its own, and no estimate of d. In few dimensions with many examples copies drown among neighbours and are not found.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEAST_PAIRS = 5
"""Pairs below the gap: fewer are chance."""
GAP = 3.0
MOST_BETWEEN = 0.25
"""Pairs inside the gap, as a share of those below it. Independent examples have at least 2."""
NARROW = 0.7
"""The gap ends below this share of the median distance: families of copies, not the halves of a class."""
EXACT = 1e-5
"""Distances below this share of the median are rounding: exact copies, which are no sign of near ones."""
AT_ONCE = 4_000
"""Examples whose distances are held at once."""
FEWEST = 20
"""Known rows that say how close different rows are by chance, and families that are no heaps."""
THINNEST = 3
"""Numbers of a training example: in fewer dimensions a few are near each other by chance."""
COPIED = 0.05
"""The share of training examples that must be copies of others to be worth a word."""
DEVIATIONS = 5.0
"""How far beyond chance the near copies of known rows must be."""
WIDTH = 64
"""Dimensions to which longer features are projected at random."""


def near_copies(features: Float[Tensor, "n d"], targets: Tensor | None = None) -> Int[Tensor, " n"]:
    """A number for each example, the same for near copies of one: 0, 1, … by the family's first example.

    Copies keep their class, so that only examples of one class are compared: the classes themselves are no families. Exact
    copies count too. Of a class with more than 4,000 examples, those next to each other along one direction are compared.

    Args:
        features: one row for each example, on one scale: see `scaled`.
        targets: the classes; without whole numbers all examples are compared.
    """
    n = len(features)
    parent = list(range(n))
    classes = targets if targets is not None and not targets.is_floating_point() and targets.ndim == 1 else None
    parts = []
    for rows in [torch.arange(n)] if classes is None else [(classes == c).nonzero()[:, 0] for c in classes.unique()]:
        along = features[rows, 0].argsort(stable=True) if len(rows) > AT_ONCE else torch.arange(len(rows))
        parts += rows[along].split(AT_ONCE)
    limits = [_gap(features[part]) for part in parts]
    # A class that is one family has no gap of its own: what is a copy in other classes is one there.
    usual = max(limits, default=0.0)
    for part, limit in zip(parts, limits, strict=True):
        for a, b in part[_closer(features[part], limit or usual)].tolist():
            _join(parent, a, b)
    roots = torch.tensor([_root(parent, i) for i in range(n)], dtype=torch.int64)
    return roots.unique(return_inverse=True)[1]


def families(inputs: list[Tensor], targets: Tensor) -> Int[Tensor, " n"] | None:
    """The families of copies among training examples, of which none may be left out alone; None where there are hardly any.

    As `near_copies` has them, where there are many families: a few heaps far apart are a kind of data, and so are equal rows in
    a table of few values. Copies of a regression have the same target, too.
    """
    n, numbers = len(targets), targets.is_floating_point()
    if not FEWEST <= n <= AT_ONCE:
        return None
    features = scaled([*inputs, targets] if numbers else inputs)
    if features.shape[1] < THINNEST:
        return None
    found = near_copies(features, targets)
    count = int(found.max()) + 1
    if count < FEWEST or count > (1 - COPIED) * n:
        return None
    rows = torch.cat([x.reshape(n, -1).double() for x in inputs], 1)
    return None if repeats_by_chance(rows, targets) else found


def scaled(inputs: list[Tensor]) -> Float[Tensor, "n d"]:
    """All inputs of an example as one row on one scale, projected to 64 numbers at most.

    Columns of a table are brought to unit variance each; images and signals have one unit for all.
    """
    parts = []
    for x in inputs:
        rows = x.reshape(len(x), -1).double().nan_to_num()
        spread = rows.std(0, correction=0)
        spread = spread if x.ndim <= 2 else spread.square().mean().sqrt().expand_as(spread)
        kept = (spread > 1e-9 * (1 + rows.abs().mean(0))).nonzero()[:, 0]
        # An axis that the data barely spreads along must not be divided by rounding errors.
        parts.append((rows[:, kept] - rows[:, kept].mean(0)) / spread[kept])
    flat = torch.cat(parts, 1) if parts else torch.zeros(0, 0)
    if flat.shape[1] <= WIDTH:
        return flat.float()
    dice = torch.Generator().manual_seed(0)
    directions = torch.randn(flat.shape[1], WIDTH, generator=dice, dtype=torch.float64) / WIDTH**0.5
    return (flat @ directions).float()


def among(known: Float[Tensor, "k d"], new: Float[Tensor, "n d"]) -> int:
    """How many new rows are near copies of known ones, or the known ones on another scale; 0 where chance explains it.

    A copy is far closer to a known row than that row is to every other one. How often different rows are is seen among the
    known ones: each is compared with the rest as the new rows are with all. Looked at as they are, and with the columns of
    both brought to mean zero and variance one, which undoes a second standardisation.
    """
    known, new = (x[:: max(1, -(-len(x) // AT_ONCE))].double() for x in (known, new))
    kept = known.std(0, correction=0) > 1e-9 * (1 + known.abs().mean(0))
    if len(known) < FEWEST or not bool(kept.any()):
        return 0
    found = 0
    for own in (known, new):
        found = max(found, _copied(*(_units(x[:, kept], like[:, kept]) for x, like in ((known, known), (new, own)))))
    return found


def _units(x: Float[Tensor, "n d"], like: Float[Tensor, "m d"]) -> Float[Tensor, "n d"]:
    """By the mean and spread of other rows: of each column in a table, of all at once where there are many."""
    spread = like.std(0, correction=0)
    spread = spread if x.shape[1] <= WIDTH else spread.square().mean().sqrt().expand_as(spread)
    return (x - like.mean(0)) / spread.clamp_min(1e-12)


def _copied(known: Float[Tensor, "k d"], new: Float[Tensor, "n d"]) -> int:
    within = torch.cdist(known, known).fill_diagonal_(torch.inf)
    (first, second), nearest = within.topk(2, 1, largest=False).values.T, within.argmin(1)
    # What the nearest row has to any other but this one.
    other = torch.where(nearest[nearest] == torch.arange(len(known)), second[nearest], first[nearest])
    chance = (1 + float((first < other / GAP).sum())) / (2 + len(known))
    distance, nearest = torch.cdist(new, known).min(1)
    found, expected = int((distance < first[nearest] / GAP).sum()), len(new) * chance
    spread = (expected * (1 + len(new) / len(known))) ** 0.5
    return found if found > LEAST_PAIRS + expected + DEVIATIONS * spread else 0


def _gap(x: Float[Tensor, "n d"]) -> float:
    """Below which distance pairs are copies: where the widest gap begins, or 0 if there is none."""
    if len(x) < 2 or not x.shape[1]:
        return 0.0
    found = torch.pdist(x)
    middle = float(found.median())
    ordered = found[found > EXACT * middle].sort().values
    places = ordered[: int((ordered < NARROW / GAP * middle).sum())]
    below = torch.arange(1, len(places) + 1)
    between = torch.searchsorted(ordered, GAP * places, right=True) - below
    good = ((below >= LEAST_PAIRS) & (between <= MOST_BETWEEN * below)).nonzero()[:, 0]
    return float(places[good[-1]]) if len(good) else 0.0


def _closer(x: Float[Tensor, "n d"], limit: float) -> Int[Tensor, "pairs 2"]:
    """Pairs up to the limit, exact copies among them."""
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    return (distances <= limit * (1 + 1e-6)).triu(1).nonzero()


def _root(parent: list[int], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def _join(parent: list[int], a: int, b: int) -> None:
    a, b = _root(parent, a), _root(parent, b)
    parent[max(a, b)] = min(a, b)


def repeats_by_chance(rows: Float[Tensor, "n d"], targets: Tensor | None = None) -> bool:
    """Whether equal rows are what a table of few values shows anyway, and no sign of copies.

    They are if columns that are shuffled each on its own give about as many equal rows, or if equal rows often have different
    classes, which copies never have.
    """
    together = rows.unique(dim=0, return_inverse=True)[1]
    found = _pairs(together)
    if not found:
        return False
    if targets is not None and targets.ndim == 1 and not targets.is_floating_point():
        same = _pairs(torch.stack((together, targets.to(together)), 1).unique(dim=0, return_inverse=True)[1])
        if found - same > max(LEAST_PAIRS, MOST_BETWEEN * found):
            return True
    dice = torch.Generator().manual_seed(0)
    shuffled = torch.stack([column[torch.randperm(len(rows), generator=dice)] for column in rows.T], 1)
    return _pairs(shuffled.unique(dim=0, return_inverse=True)[1]) > MOST_BETWEEN * found


def _pairs(groups: Int[Tensor, " n"]) -> float:
    counts = groups.bincount().double()
    return float((counts * (counts - 1)).sum() / 2)
