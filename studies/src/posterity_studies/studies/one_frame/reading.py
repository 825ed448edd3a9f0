"""Figures by share, update and block, and the verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict

WAYS = {
    "pair": "nearest pair",
    "floor": "floor + nearest pair",
    "frame": "one frame with values",
    "best": "best frame of a search",
    "turned": "frame, some directions turned",
}
LIMIT = 5.0
"""Nats a block may lose."""
MANY = 100.0
"""Nats that count as many: where the nearest pair loses at least so much, a frame is needed."""


def shares(records: Sequence[Record]) -> list[float]:
    return sorted({r.arguments["share"] for r in records}, reverse=True)


def blocks(records: Sequence[Record]) -> list[str]:
    return list(records[0].arguments["blocks"])


def updates(records: Sequence[Record]) -> list[int]:
    block = blocks(records)[0]
    return sorted({int(key.split()[1]) for key in records[0].values if key.startswith(f"{block} ")})


def at(records: Sequence[Record], share: float, block: str, update: int, key: str) -> list[float]:
    """Of all seeds, or of those that searched for the best frame."""
    name = f"{block} {update} {key}"
    return [r.values[name] for r in records if r.arguments["share"] == share and name in r.values]


def mean(records: Sequence[Record], share: float, block: str, update: int, key: str) -> float:
    """NaN where no seed has it."""
    found = at(records, share, block, update, key)
    return statistics.mean(found) if found else math.nan


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where a turned frame loses less than 5 nats in every block at every update, and the nearest pair 100 in some."""
    cases = [(s, b, k) for s in shares(records) for b in blocks(records) for k in updates(records)]
    found = {
        way: {case: mean(records, *case, f"{way} kl") for case in cases} for way in ("pair", "frame", "best", "turned")
    }
    plain, could, held = ([c for c in cases if found[way][c] < LIMIT] for way in ("frame", "best", "turned"))
    many = [case for case in cases if found["pair"][case] >= MANY]
    lost = {way: max(found[way].values()) for way in ("pair", "frame", "turned")}
    why = (
        f"With some directions turned, a frame loses less than {LIMIT:g} nats in {len(held)} of {len(cases)} cases (share, "
        f"block, update), at most {lost['turned']:,.1f}. A plain one does in {len(plain)} and loses up to {lost['frame']:,.1f}; "
        f"the best plain frame that a search finds does in {len(could)}. The nearest pair loses {MANY:g} nats or more in "
        f"{len(many)}, and at most {lost['pair']:,.0f}."
    )
    upheld = len(held) == len(cases) and bool(many)
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, why)
