"""Accuracies over temperature, ours and the paper's."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from importlib.resources import files

from posterity_studies.cold_posterior.cells import ALL
from posterity_studies.declaration import Record


def published(gamma: float, kind: str) -> dict[float, float]:
    """The paper's Figure 8 (left), by temperature."""
    found = json.loads(files("posterity_studies.cold_posterior").joinpath("paper.json").read_text())
    return {float(tau): value for tau, value in found["figure 8"].get(f"{gamma:g} {kind}", {}).items()}


def amounts(records: Sequence[Record]) -> list[int]:
    """Images per class that there are results for, all of them first."""
    return sorted({r.arguments["shots"] for r in records})


def named(shots: int) -> str:
    return "all images" if shots == ALL else f"{shots} per class"


def of(records: Sequence[Record], shots: int) -> list[Record]:
    return [r for r in records if r.arguments["shots"] == shots]


def gammas(records: Sequence[Record]) -> list[float]:
    return sorted({g for r in records for g in r.arguments["gammas"]}, reverse=True)


def ways(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(way for r in records for way in r.arguments["taus"]))


def temperatures(records: Sequence[Record]) -> list[float]:
    return sorted({t for r in records for taus in r.arguments["taus"].values() for t in taus}, reverse=True)


def samples(records: Sequence[Record], kind: str, key: str) -> dict[int, float]:
    """By seed."""
    return {r.arguments["seed"]: r.values[key] for r in records if r.arguments["prior"] == kind and key in r.values}


def lost(records: Sequence[Record], kind: str, key: str) -> list[float]:
    """What is lost to the mode, in points of accuracy, seed by seed."""
    mode = samples(records, kind, "map")
    return [mode[seed] - value for seed, value in samples(records, kind, key).items()]


def mean_lost(records: Sequence[Record], kind: str, key: str) -> float:
    found = lost(records, kind, key)
    return statistics.mean(found) if found else float("nan")
