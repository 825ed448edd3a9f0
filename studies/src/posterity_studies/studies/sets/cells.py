"""One set with one draw of labels: coverage and size of every way to make sets."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets import UCI, uci
from posterity_studies.shared.labelled import labelled
from posterity_studies.shared.watch import recordings, windows
from posterity_studies.studies.sets.methods import LabelledRows, evaluate

NUMBERS = ("diabetes", *UCI)
GROUPED = "watch"
"""Windows of a smartwatch's recordings: each recording is a group."""
EACH = 3
"""Windows of a recording that are labelled, and as many that are tested."""
LABELS = 5
"""Labels a class on average: of a set with more classes than that allows, some are drawn."""


@cache
def rows(name: str) -> LabelledRows:
    """A set by name; targets are numbers for regressions and classes else."""
    if name == GROUPED:
        return _watch()
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        found = load_diabetes()
        x, y = torch.tensor(found.data), torch.tensor(found.target)
    elif name in UCI:
        parts = uci(name, 0)
        x = torch.cat((parts.train[0], parts.test[0])).double()
        y = torch.cat((parts.train[1], parts.test[1])).double()[:, 0]
    else:
        made = labelled(name)
        x, y = made.x.double(), made.y.long()
    return LabelledRows(x, y, torch.arange(len(y)))


def _watch() -> LabelledRows:
    """Means and deviations of each channel of three windows spread over each recording."""
    cut = windows(recordings())
    kept = []
    for recording in cut.recording.unique().tolist():
        own = (cut.recording == recording).nonzero().flatten()
        kept.append(own[torch.linspace(0, len(own) - 1, EACH).round().long()])
    index = torch.cat(kept)
    x = cut.x[index].double()
    return LabelledRows(torch.cat((x.mean(2), x.std(2)), 1), cut.y[index].long(), cut.recording[index])


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    labels, test = drawn(rows(arguments["data"]), arguments["examples"], arguments["tested"], generator)
    found = evaluate(labels, test, arguments["coverage"])
    return {way: {"coverage": round(s.coverage, 4), "size": round(s.size, 4)} for way, s in found.items()}


def drawn(
    whole: LabelledRows, labels: int, tested: int, generator: torch.Generator
) -> tuple[LabelledRows, LabelledRows]:
    """Labels and test rows of the same classes at random, whole groups, again until each class has two groups of labels."""
    if not whole.numeric:
        whole = _some_classes(whole, labels // LABELS, generator)
    groups, sizes = whole.groups.unique(return_counts=True)
    count = max(round(labels / float(sizes.double().mean())), 1)
    for _ in range(1000):
        order = groups[torch.randperm(len(groups), generator=generator)]
        train = torch.isin(whole.groups, order[:count]).nonzero().flatten()
        if whole.numeric or _two_each(whole, train):
            break
    test = torch.isin(whole.groups, order[count:]).nonzero().flatten()
    test = test[torch.randperm(len(test), generator=generator)[:tested]]
    return whole.rows(train[torch.randperm(len(train), generator=generator)]), whole.rows(test)


def _some_classes(whole: LabelledRows, most: int, generator: torch.Generator) -> LabelledRows:
    """As many classes as there are labels for, renumbered."""
    if len(whole.groups.unique()) < len(whole.groups):
        most //= EACH
    present = whole.y.unique()
    chosen = present[torch.randperm(len(present), generator=generator)[: max(most, 2)]].sort().values
    found = whole.rows(torch.isin(whole.y, chosen).nonzero().flatten())
    return LabelledRows(found.x, torch.searchsorted(chosen, found.y), found.groups)


def _two_each(whole: LabelledRows, train: Tensor) -> bool:
    pairs = torch.stack((whole.y[train], whole.groups[train]), 1).unique(dim=0)[:, 0]
    return bool((pairs.bincount(minlength=int(whole.y.max()) + 1) >= 2).all())
