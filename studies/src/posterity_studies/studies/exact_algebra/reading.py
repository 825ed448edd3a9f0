"""Values by γ, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict

ROUNDING = 1e-6
"""Catoni values are kept to six digits."""


def values_at(records: Sequence[Record], gamma: float, key: str) -> list[float]:
    return [r.values[key] for r in records if r.arguments["gamma"] == gamma]


def gammas(records: Sequence[Record]) -> list[float]:
    return sorted({r.arguments["gamma"] for r in records})


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where scales per layer are better in no cell, and at each γ the exact sum's draws are at least as accurate."""
    best = min(gammas(records), key=lambda g: statistics.mean(values_at(records, g, "one number catoni")))
    one, layer, untuned = (
        statistics.mean(values_at(records, best, f"{name} catoni")) for name in ("one number", "per layer", "untuned")
    )
    exact, pair = (statistics.mean(values_at(records, best, f"{name} kl")) for name in ("exact", "pair"))
    accuracies = {
        g: [statistics.mean(values_at(records, g, f"{name} sampled")) for name in ("exact", "pair")]
        for g in gammas(records)
    }
    beaten = sum(r.values["one number catoni"] > r.values["per layer catoni"] + ROUNDING for r in records)
    kept, joined = accuracies[best]
    why = (
        f"At γ = {best:g} draws from the exact sum have an accuracy of {kept:.1f} % and a KL divergence of {exact:,.0f} "
        f"nats; from the nearest single pair of the same posterior {joined:.1f} % and {pair:,.0f} nats. One "
        f"number gives a Catoni value of {one:.4f}, three scales per layer {layer:.4f}, no tuning {untuned:.4f}; "
        f"scales per layer are better in {beaten} of {len(records)} cells."
    )
    upheld = not beaten and all(kept >= joined for kept, joined in accuracies.values())
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, why)
