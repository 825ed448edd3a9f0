"""Heads on frozen features, set by set."""

from __future__ import annotations

import torch

from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.shots import drawn
from posterity_studies.studies.few_shot.methods import every_method


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Measures by method, with the number of training and validation labels."""
    where = {name: arguments[name] for name in ("unknown", "size", "shots", "seed", "classes")}
    shots = drawn(arguments["set"], **where)
    counts = {"classes": shots.classes, "train": len(shots.train[1]), "held": len(shots.held[1])}
    return {**counts, "methods": every_method(shots, arguments["who"], arguments["seed"])}
