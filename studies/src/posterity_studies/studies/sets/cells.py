"""One set with one seed: coverage and size of every way to make sets."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets import UCI, uci
from posterity_studies.shared.labelled import labelled
from posterity_studies.studies.sets.methods import evaluate

NUMBERS = ("diabetes", *UCI)


@cache
def rows(name: str) -> tuple[Tensor, Tensor]:
    """A set by name; targets are numbers for regressions and classes else."""
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        found = load_diabetes()
        return torch.tensor(found.data), torch.tensor(found.target)
    if name in UCI:
        parts = uci(name, 0)
        return torch.cat((parts.train[0], parts.test[0])).double(), torch.cat((parts.train[1], parts.test[1])).double()[
            :, 0
        ]
    made = labelled(name)
    return made.x.double(), made.y.long()


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    x, y = rows(arguments["data"])
    order = torch.randperm(len(y), generator=generator)
    train, test = order[: arguments["examples"]], order[arguments["examples"] :][: arguments["tested"]]
    found = evaluate((x[train], y[train]), (x[test], y[test]), arguments["coverage"], arguments["seed"])
    return {way: {"coverage": round(s.coverage, 4), "size": round(s.size, 4)} for way, s in found.items()}
