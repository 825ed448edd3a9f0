"""The last stage and a new head on one seed's pictures."""

from __future__ import annotations

import torch

from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.last_stage import source
from posterity_studies.shared.shots import drawn_maps
from posterity_studies.studies.last_stage.methods import every_method


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Measures by method, with the number of labels that each kind of method trains and chooses with."""
    where = {name: arguments[name] for name in ("unknown", "size", "shots", "seed", "classes", "tested", "strangers")}
    shots = drawn_maps(arguments["set"], **where)
    counts = {"train": len(shots.train[1]), "held": len(shots.held[1]), "test": len(shots.test[1])}
    return {**counts, "methods": every_method(source(arguments["set"]), shots, arguments["who"], arguments["steps"])}
