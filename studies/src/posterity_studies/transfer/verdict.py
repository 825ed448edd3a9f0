"""On how many pairs of data sets the learned prior beats a tuned isotropic prior around the same mean."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.declaration import Outcome, Record, Verdict
from posterity_studies.intervals import paired
from posterity_studies.transfer.fair import on, pairs_of
from posterity_studies.transfer.scores import by_seed


def verdict(records: Sequence[Record]) -> Verdict:
    better, total = [], 0
    for pair in pairs_of(records):
        here = on(records, pair)
        for shots in sorted({r.arguments["shots"] for r in here}):
            total += 1
            mean, half = paired(*(by_seed(here, shots, kind, "map nll") for kind in ("learned", "mean")))
            if mean + half < 0:
                better.append(f"{pair[0]} → {pair[1]} at {shots} per class ({mean:+.2f})")
    why = (
        f"With every prior tuned on the same images the learned one has the lower MAP NLL in {len(better)} of {total} "
        f"comparisons (95 % interval of the paired difference below zero): {'; '.join(better) or 'none'}."
    )
    return Verdict(Outcome.ours, why)
