"""Accuracies over temperature, ours and the paper's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from posterity.studies.declaration import Record

UNITS = {"free": "all weights drawn", "pinned": "dead units left alone"}


def published(gamma: float, kind: str) -> dict[float, float]:
    """The paper's Figure 8 (left), by temperature."""
    found = json.loads(files("posterity.studies.cold_posterior").joinpath("paper.json").read_text())
    return {float(tau): value for tau, value in found["figure 8"].get(f"{gamma:g} {kind}", {}).items()}


def gammas(records: Sequence[Record]) -> list[float]:
    return sorted({g for r in records for g in r.arguments["gammas"]}, reverse=True)


def temperatures(records: Sequence[Record]) -> list[float]:
    return sorted({t for r in records for t in r.arguments["taus"]}, reverse=True)


def samples(records: Sequence[Record], kind: str, key: str) -> dict[int, float]:
    """By seed."""
    return {r.arguments["seed"]: r.values[key] for r in records if r.arguments["prior"] == kind and key in r.values}


def lost(records: Sequence[Record], kind: str, key: str) -> dict[int, float]:
    """What is lost to the mode, in points of accuracy, by seed."""
    mode = samples(records, kind, "map")
    return {seed: mode[seed] - value for seed, value in samples(records, kind, key).items()}
