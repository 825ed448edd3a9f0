"""The ways by seed, and whether leave-one-out keeps up with validation data."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.comparison import Comparison
from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import shown

WAYS = Comparison(
    ways={
        "loo": "leave-one-out",
        "validation": "50 validation images a task",
        "loo, floors kept": "leave-one-out, floors of the priors kept",
    },
    group=lambda r: f"split MNIST after NotMNIST, {r.arguments['shots']} a class",
    unit=lambda r: str(r.arguments["seed"]),
    measures={"nll": "NLL", "ece": "ECE", "accuracy": "accuracy"},
)


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where the NLL by leave-one-out is not above that by validation data by .02 or more on average."""
    (group,) = WAYS.groups(records)
    gap = WAYS.gap(records, group, "validation")
    why = (
        f"NLL by leave-one-out less NLL by validation data, which leave-one-out does not look at: "
        f"{shown(*gap, digits=3, sign=True)} over {len(records)} seeds of five tasks."
    )
    return Verdict(Outcome.ours if gap.mean < 0.02 else Outcome.unsupported, why)
