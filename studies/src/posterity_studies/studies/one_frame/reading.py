"""Figures by share, update and block, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.studies.one_frame.methods import CORE

WAYS = {
    "pair": "nearest pair",
    "floor": "floor + nearest pair",
    "frame": "one frame with values",
    "best": "best frame of a search",
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
    return [r.values[f"{block} {update} {key}"] for r in records if r.arguments["share"] == share]


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where a frame loses less than 5 nats in every block at every update, and the nearest pair 100 in some."""
    cases = [(s, b, k) for s in shares(records) for b in blocks(records) for k in updates(records)]
    found = {
        way: {case: statistics.mean(at(records, *case, f"{way} kl")) for case in cases}
        for way in ("pair", "frame", "best", "core")
    }
    held, could, inside = ([c for c in cases if found[way][c] < LIMIT] for way in ("frame", "best", "core"))
    many = [case for case in cases if found["pair"][case] >= MANY]
    worst = max(cases, key=lambda case: found["frame"][case])
    why = (
        f"One frame with values loses less than {LIMIT:g} nats in {len(held)} of {len(cases)} cases (share, block, update); "
        f"at most {found['frame'][worst]:,.1f}, in block {worst[1]} after update {worst[2]} at a share of {worst[0]:g}. The "
        f"nearest pair loses {MANY:g} nats or more in {len(many)}, and at most {max(found['pair'].values()):,.0f}. The best "
        f"frame that a search finds stays below {LIMIT:g} in {len(could)}; a frame with {CORE} of its directions kept dense "
        f"in {len(inside)}."
    )
    upheld = len(held) == len(cases) and bool(many)
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, why)
