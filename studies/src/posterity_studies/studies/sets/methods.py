"""Sets and intervals as a user gets them, and those of split conformal with the same labels and the same head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import posterity as pt
from posterity.predictive.sets import class_sets, improbability, split_intervals, split_threshold


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of features with their targets: numbers of classes, or numbers. Rows of a group belong together."""

    x: Tensor
    y: Tensor
    groups: Tensor

    def rows(self, index: Tensor) -> LabelledRows:
        return LabelledRows(self.x[index], self.y[index], self.groups[index])

    @property
    def numeric(self) -> bool:
        return self.y.is_floating_point()

    @property
    def alone(self) -> bool:
        """Whether every row is a group by itself."""
        return len(self.groups.unique()) == len(self.groups)


@dataclass(frozen=True)
class SetScore:
    """The share of targets inside, and the mean size (classes in a set, or length in deviations of the target)."""

    coverage: float
    size: float


def evaluate(labels: LabelledRows, test: LabelledRows, coverage: float) -> dict[str, SetScore]:
    """Every way on the same labels."""
    groups = None if labels.alone else labels.groups
    ways = {"library": _said(labels, groups, test, coverage), "split": _split(labels, test, coverage)}
    if groups is not None:
        ways["without groups"] = _said(labels, None, test, coverage)
    return ways


def _said(labels: LabelledRows, groups: Tensor | None, test: LabelledRows, coverage: float) -> SetScore:
    """By the public calls alone."""
    said = pt.head(labels.x, labels.y, groups=groups).predict(test.x)
    return _intervals(said.interval(coverage), test) if labels.numeric else _sets(said.sets(coverage), test)


def _split(labels: LabelledRows, test: LabelledRows, coverage: float) -> SetScore:
    """One half of the groups trains, the other calibrates; every class is cut in two."""
    trains = _half(labels)
    part, held = labels.rows(trains.nonzero().flatten()), labels.rows((~trains).nonzero().flatten())
    fit = pt.head(part.x, part.y, groups=None if part.alone else part.groups)
    groups = None if held.alone else held.groups
    old, new = fit.predict(held.x), fit.predict(test.x)
    if labels.numeric:
        limit = split_threshold((held.y - old.mean.flatten()).abs() / old.variance.flatten().sqrt(), coverage, groups)
        return _intervals(split_intervals(new.mean.flatten(), new.variance.flatten().sqrt(), limit), test)
    limit = split_threshold(improbability(old.probs).gather(1, held.y[:, None])[:, 0], coverage, groups)
    return _sets(class_sets(new.probs, limit), test)


def _half(labels: LabelledRows) -> Tensor:
    """Every second group of each class, the first one trains."""
    trains = torch.zeros(len(labels.y), dtype=torch.bool)
    for c in [None] if labels.numeric else labels.y.unique().tolist():
        mine = torch.ones_like(trains) if c is None else labels.y == c
        for group in labels.groups[mine].unique()[::2].tolist():
            trains |= mine & (labels.groups == group)
    return trains


def _sets(inside: Tensor, test: LabelledRows) -> SetScore:
    held = inside.gather(1, test.y[:, None]).double().mean()
    return SetScore(float(held), float(inside.sum(1).double().mean()))


def _intervals(ends: Tensor, test: LabelledRows) -> SetScore:
    inside = (ends[:, 0] <= test.y) & (test.y <= ends[:, 1])
    return SetScore(float(inside.double().mean()), float((ends[:, 1] - ends[:, 0]).mean() / test.y.std()))
