"""What every protocol of the transfer study measures, and how its cells are read back."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from posterity.predictive import Scores, score
from posterity_studies.declaration import Record


@torch.no_grad()
def map_scores(model: nn.Module, data: tuple[Tensor, Tensor]) -> Scores:
    return score(model(data[0]).softmax(-1), data[1])


def named(method: str, scores: Scores) -> dict[str, float]:
    return {f"{method} {name}": float(f"{getattr(scores, name):.5g}") for name in ("accuracy", "nll", "ece")}


def of(records: Sequence[Record], protocol: str) -> list[Record]:
    return [r for r in records if r.arguments["protocol"] == protocol]


def by_seed(records: Sequence[Record], shots: int, kind: str, measure: str) -> dict[int, float]:
    return {
        r.arguments["seed"]: r.values[measure]
        for r in records
        if r.arguments["shots"] == shots and r.arguments["prior"] == kind
    }


def mean(sample: dict[int, float]) -> str:
    return f"{statistics.mean(sample.values()):.3f}" if sample else "–"
