"""How strong a prior is, as numbers that are chosen from a grid declared in advance."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

SHARES = (0.0, 0.001, 0.01, 0.1, 1.0)
FLOORS = (0.01, 0.1, 1.0, 10.0, 100.0)
HEADS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)


@dataclass(frozen=True)
class Strength:
    """share · (what the source learned) + floor, and the floor of a head that is new.

    A share of 0 is the isotropic prior around the same mean; an infinite floor leaves all but a new head at the prior's mean.
    """

    share: float = 1.0
    floor: float = 1.0
    head: float = 1.0


def strengths(learned: bool, new_head: bool) -> tuple[Strength, ...]:
    """The grid: all combinations of the numbers that have a meaning."""
    shares = SHARES if learned else (0.0,)
    heads = HEADS if new_head else (1.0,)
    found = [Strength(share, floor, head) for share, floor, head in product(shares, FLOORS, heads)]
    if new_head:
        found += [Strength(0.0, float("inf"), head) for head in heads]
    return tuple(found)
