"""Errors by method, layer and batch size, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.studies.kfoc_quality.cells import BLOCKS


def samples(records: Sequence[Record], method: str, block: str, batch: int) -> list[float]:
    return [r.values[f"{method} {block}"] for r in records if r.arguments["batch"] == batch]


def batches(records: Sequence[Record]) -> list[int]:
    return sorted({r.arguments["batch"] for r in records})


def verdict(records: Sequence[Record]) -> Verdict:
    """Reproduced: closer everywhere. Partly: in most layers and batch sizes."""
    pairs = [
        (
            statistics.mean(samples(records, "kfoc", block, batch)),
            statistics.mean(samples(records, "kfac", block, batch)),
        )
        for batch in batches(records)
        for block in BLOCKS
    ]
    closer = sum(kfoc <= kfac for kfoc, kfac in pairs)
    ratio = statistics.mean(kfoc / kfac for kfoc, kfac in pairs)
    why = (
        f"K-FOC is closer to the Fisher information than KFAC in {closer} of {len(pairs)} layers and batch sizes; its "
        f"error is on average {ratio:.2f} of KFAC's."
    )
    most = 2 * closer > len(pairs)
    return Verdict(
        Outcome.reproduced if closer == len(pairs) else Outcome.partly if most else Outcome.not_reproduced, why
    )
