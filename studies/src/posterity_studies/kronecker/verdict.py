"""Whether the power method's errors are the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.declaration import Outcome, Record, Verdict
from posterity_studies.kronecker import paper
from posterity_studies.kronecker.curves import of, overall


def verdict(records: Sequence[Record]) -> Verdict:
    if not of(records, "decay"):
        return Verdict(Outcome.not_reproduced, "There are no cells with weight decay yet.")
    ours, guarded = (overall(records, name).mean for name in ("power", "power_guarded"))
    theirs = paper.OVERALL["power"][0]
    apart = abs(guarded / theirs - 1)
    why = (
        f"The nearest product's relative error is {ours:.4f}, and {guarded:.4f} measured the authors' way (the paper: "
        f"{theirs:.4f}); the factor-wise sum's is {overall(records, 'sum').mean / ours:.1f} times as large. The closed "
        "form gives the power method's result in one pass."
    )
    return Verdict(Outcome.reproduced if apart < 0.05 else Outcome.partly, why)
