"""Values by γ, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict


def of(records: Sequence[Record], gamma: float, key: str) -> list[float]:
    return [r.values[key] for r in records if r.arguments["gamma"] == gamma]


def gammas(records: Sequence[Record]) -> list[float]:
    return sorted({r.arguments["gamma"] for r in records})


def verdict(records: Sequence[Record]) -> Verdict:
    gamma = min(gammas(records), key=lambda g: statistics.mean(of(records, g, "one number catoni")))
    one, layer, untuned = (
        statistics.mean(of(records, gamma, f"{w} catoni")) for w in ("one number", "per layer", "untuned")
    )
    exact, pair = (statistics.mean(of(records, gamma, f"{w} kl")) for w in ("exact", "pair"))
    never = all(r.values["one number catoni"] <= r.values["per layer catoni"] + 1e-6 for r in records)
    kept, joined = (statistics.mean(of(records, gamma, f"{w} sampled")) for w in ("exact", "pair"))
    why = (
        f"At γ = {gamma:g} the exact sum's draws have an accuracy of {kept:.1f} % and a KL divergence of {exact:,.0f} "
        f"nats; joined to the nearest single pair the same posterior has {joined:.1f} % and {pair:,.0f} nats. One "
        f"number gives a Catoni value of {one:.4f}, three scales per layer {layer:.4f}, no tuning {untuned:.4f}; "
        f"per-layer scales {'never' if never else 'sometimes'} do better."
    )
    return Verdict(Outcome.ours, why)
