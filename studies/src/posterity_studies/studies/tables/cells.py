"""One split of one table through the estimator, its candidates and every rival."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.labelled.numbers import (
    REGRESSIONS,
    SETTLING_CLASSES,
    SETTLING_REGRESSIONS,
    WITH_CLASSES,
    TableRows,
)
from posterity_studies.studies.tables.methods import RIVALS, Task, candidates, ours, scored

MADE_UP = ("made-up classes", "made-up numbers")
SETS = WITH_CLASSES | REGRESSIONS | SETTLING_CLASSES | SETTLING_REGRESSIONS
ROWS = {"wine": 60, "breast cancer": 100, "house prices": 60}
"""To learn from, where they are not `USUAL`."""
USUAL, MOST, TESTED = 200, 0.7, 500


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Measures by method."""
    _warm()
    task = drawn(arguments["set"], arguments["split"])
    found, ways = ours(task)
    values = {"classes": task.classes, "train": len(task.x), "test": len(task.new), "ways": ways}
    if arguments["who"] == "candidates":
        return values | {"methods": {"ours": found} | candidates(task)}
    rivals = {name: scored(rival, task) for name, rival in RIVALS.items() if task.classes or name != "discriminant"}
    return values | {"methods": {"ours": found} | rivals, "candidates": candidates(task)}


@cache
def _warm() -> None:
    """What libraries do once a process counts for no method."""
    for name in MADE_UP:
        task = drawn(name, 0)
        ours(task)
        for rival in RIVALS.values() if task.classes else ():
            rival(task)


def drawn(name: str, split: int) -> Task:
    """The rows that a split draws. Classes that nothing was drawn of are not tested."""
    rows = _made_up(name) if name in MADE_UP else SETS[name]()
    order = np.random.RandomState(split).permutation(len(rows.y))
    count = min(ROWS.get(name, USUAL), int(MOST * len(rows.y)))
    train, test = order[:count], order[count : count + TESTED]
    y, truth = rows.y[train], rows.y[test]
    if rows.classes:
        present, index = np.unique(y, return_inverse=True)
        test, truth = test[np.isin(truth, present)], truth[np.isin(truth, present)]
        place = np.searchsorted(present, truth).astype(np.float64)
        return Task(rows.x[train], index.astype(np.float64), rows.x[test], place, len(present))
    mean, spread = y.mean(), y.std()
    return Task(rows.x[train], (y - mean) / spread, rows.x[test], (truth - mean) / spread, 0)


def _made_up(name: str) -> TableRows:
    draw = np.random.RandomState(0)
    x = draw.randn(60, 3)
    y = np.sin(x[:, 0]) + 0.1 * draw.randn(60)
    return TableRows(x, (y > 0).astype(float), 2) if name == MADE_UP[0] else TableRows(x, y)
