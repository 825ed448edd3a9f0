"""One draw of labels of one set, through our head and every rival; and rounds of asking for labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from posterity.data.leave_out import LeaveOut
from posterity.heads import ClassFit, classify, worth
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.labelled import NAMED, LabelledSet, labelled, split
from posterity_studies.shared.labelled.sets import IMAGES, MADE_UP
from posterity_studies.shared.rivals.next_label import RULES
from posterity_studies.studies.heads.methods import RIVALS, Task, fitted, ours, rival, scores, words_of

PER_CLASS = 10
"""Labels a class when asking ends."""
TESTED = 400


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """What one draw of one set says."""
    kinds = {"labels": _labels, "asking": _asking, "worth": _worth}
    return kinds[arguments["kind"]](arguments, generator)


def _asking(arguments: Arguments, generator: torch.Generator) -> Values:
    """The NLL after every round, by rule."""
    task = drawn(arguments["set"], 1, arguments["seed"])
    return {"classes": task.found.classes, "rules": {rule: curve(task, rule, arguments["seed"]) for rule in RULES}}


def curve(task: Task, rule: str, seed: int) -> dict[str, Any]:
    """Labels and NLL after every round of as many labels as there are classes (at least five)."""
    found, generator = task.found, torch.Generator().manual_seed(seed)
    test = task.test[:TESTED]
    free = torch.ones(len(found.y), dtype=torch.bool)
    free[test] = False
    known = task.train.clone()
    counts, losses = [], []
    while True:
        fit = _fit(task, known)
        counts.append(len(known))
        losses.append(scores(fit.head.log_probs(found.x[test]), found.y[test])["nll"])
        missing = PER_CLASS * found.classes - len(known)
        free[known] = False
        pool = free.nonzero().flatten()
        k = min(max(found.classes, 5), missing, len(pool))
        if k <= 0:
            return {"labels": counts, "nll": losses}
        known = torch.cat([known, pool[RULES[rule](fit, found.x[pool], k, generator)]])


def _fit(task: Task, known: Tensor) -> ClassFit:
    y = task.found.y[known]
    folds = LeaveOut.of(y).folds if int(y.bincount().max()) > 1 else torch.full_like(y, -1)
    return classify(task.found.x[known], y, folds, classes=task.found.classes)


def _worth(arguments: Arguments, generator: torch.Generator) -> Values:
    """What as many labels again were said to be worth, and what they were."""
    now, later = (drawn(arguments["set"], n * arguments["shots"], arguments["seed"]) for n in (1, 2))
    fit = fitted(now)
    said = worth(fit, len(later.train) - len(now.train), generator)
    x, y = now.found.x[now.test], now.found.y[now.test]
    before, after = (scores(f.head.log_probs(x), y)["nll"] for f in (fit, fitted(later)))
    return {
        "said": round(said.gain, 5), "low": round(said.low, 5), "high": round(said.high, 5),
        "was": round(before - after, 5), "nll": before,
    }  # fmt: skip


def _labels(arguments: Arguments, generator: torch.Generator) -> Values:
    """Measures by method."""
    task = drawn(arguments["set"], arguments["shots"], arguments["seed"])
    found = {"ours": ours(task)}
    if arguments["set"] in (*NAMED, MADE_UP):
        found["names"] = ours(task, words_of(task))
        found["shuffled names"] = ours(task, words_of(task, shuffled=arguments["seed"]))
    # Folds of two labels a class leave one of each: no covariance to estimate.
    rivals = [name for name in RIVALS if name != "discriminant" or arguments["shots"] > 2]
    found |= {name: rival(name, task) for name in rivals}
    return {"classes": task.found.classes, "train": len(task.train), "test": len(task.test), "methods": found}


def drawn(name: str, shots: int, seed: int) -> Task:
    """The rows that a seed draws, of so many classes that it draws too."""
    found = labelled(name)
    most = 10 if name in IMAGES else 20
    if found.classes > most:
        order = torch.randperm(found.classes, generator=torch.Generator().manual_seed(seed))
        kept = order[:most].sort().values
        rows = torch.isin(found.y, kept)
        found = LabelledSet(
            found.x[rows],
            torch.searchsorted(kept, found.y[rows]),
            tuple(found.names[c] for c in kept.tolist()),
            None if found.embedded is None else found.embedded[kept],
        )
    return Task(name, found, *split(found, shots, seed))
