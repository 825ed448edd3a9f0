"""Means over seeds by pair of known and unknown inputs, and whether pretended unknowns gain anything."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval, shown
from posterity_studies.shared.known_inputs import RIVALS
from posterity_studies.studies.pretended_unknowns.methods import SETS

Pair = tuple[str, str]
"""A set, and what is unknown in it."""
RULES = ("library", "pretended", "pretended, twice as strong", "class distance", "in hindsight")
NAMED = tuple(n for n in RIVALS if n.startswith("neighbours") or n in ("Mahalanobis", "energy", "max probability"))
GAIN = 0.005
"""What would be worth the weights."""
WAYS = ("frozen features", "after a source", "from scratch")


def pairs(records: Sequence[Record], way: str | None = None) -> list[Pair]:
    found = dict.fromkeys((r.arguments["set"], other) for r in records for other in r.values["agreement"])
    return [pair for pair in found if way in (None, SETS[pair[0]].way)]


def auroc(records: Sequence[Record], pair: Pair, group: str, name: str) -> float:
    return mean(r.values[group][name][pair[1]] for r in records if r.arguments["set"] == pair[0])


def gains(records: Sequence[Record], rule: str, way: str | None = None) -> Interval:
    """AUROC by a rule less the library's, over pairs."""
    return interval(
        [auroc(records, p, "rules", rule) - auroc(records, p, "rules", "library") for p in pairs(records, way)]
    )


def regret(records: Sequence[Record], rule: str, way: str | None = None) -> float:
    """How much a rule is behind the best of neighbours, Mahalanobis, energy and max probability; a lead counts as nothing."""
    return mean(max(best_rival(records, p) - auroc(records, p, "rules", rule), 0.0) for p in pairs(records, way))


def best_rival(records: Sequence[Record], pair: Pair) -> float:
    return max(auroc(records, pair, "rivals", name) for name in NAMED)


def agreement(records: Sequence[Record], way: str) -> float:
    """The mean correlation, over scores, of the AUROC for pretended unknowns with that for unknown inputs."""
    return mean(x for r in records if SETS[r.arguments["set"]].way == way for x in r.values["agreement"].values())


def alarms(records: Sequence[Record], left_out: str) -> Interval:
    """Of frozen features, where both ways to leave out are computed."""
    return interval([r.values["alarms"][left_out] for r in records if "one of every class" in r.values["alarms"]])


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where the weights gain .005 of AUROC or more on average over pairs, beyond the interval."""
    gain, hindsight = gains(records, "pretended"), gains(records, "in hindsight")
    by_way = ", ".join(
        f"{way} {shown(*gains(records, 'pretended', way), digits=3, sign=True)}" for way in WAYS if pairs(records, way)
    )
    near = gains(records, "class distance")
    why = (
        f"AUROC over {len(pairs(records))} pairs, less that of the library's fixed weights: "
        f"{shown(*gain, digits=3, sign=True)} with weights by pretended unknowns ({by_way}), "
        f"{shown(*hindsight, digits=3, sign=True)} with weights in hindsight. Behind the best of four rivals in hindsight: "
        f"{regret(records, 'library'):.3f} on average, {regret(records, 'pretended'):.3f} by pretended unknowns. The other way "
        f"that was tried, one more score, the distance to the nearest class: {shown(*near, digits=3, sign=True)}, "
        f"{regret(records, 'class distance'):.3f} behind."
    )
    held = gain.mean >= GAIN and gain.low > 0
    return Verdict(Outcome.ours if held else Outcome.unsupported, why)
