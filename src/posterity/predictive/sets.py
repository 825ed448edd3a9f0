"""Prediction sets and intervals: from left-out predictions without a calibration split, or from calibration data.

`LeftOutScores` are what `prediction.sets` and `.interval` use: the scores of left-out examples, and the one predictor that has
seen all. About 1 − α in practice (study sets), guaranteed only where predictions hardly depend on any one fold (Bousquet and
Elisseeff, 2002). Who has the predictors of the folds can have a theorem:

Left-out predictions give jackknife+ (one fold an example) and CV+ (several examples a fold): Barber, Candès, Ramdas and
Tibshirani, "Predictive inference with the jackknife+" (2021); for classes Romano, Sesia and Candès (2020). For exchangeable
examples both contain the truth with probability at least 1 − 2α (CV+ less a term of at most √(2/n)) and in practice about
1 − α; "minmax" guarantees 1 − α and is wider. Split conformal guarantees 1 − α, from data that took no part in the fit.

With groups, whole groups are exchangeable and each counts as one, however many examples it has (Lee, Barber and Willett,
"Distribution-free inference with hierarchical data", 2023). Folds must then hold whole groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from posterity.brief import brief
from posterity.errors import BadData, SizeMismatch

Kind = Literal["plus", "minmax"]
"""Jackknife+ / CV+, or its conservative variant."""
ClassScores = Callable[[Tensor], Tensor]
"""From probabilities [..., classes] to a score of every class, the larger the less it conforms."""

INPUTS_AT_ONCE = 2**24
"""Numbers in memory at a time."""


def improbability(probs: Float[Tensor, "*n classes"]) -> Float[Tensor, "*n classes"]:
    """One minus the probability of each class: the smallest sets on average."""
    return 1 - probs


def cumulative(probs: Float[Tensor, "*n classes"]) -> Float[Tensor, "*n classes"]:
    """The probability of all classes that are more probable than each class, plus half its own.

    The adaptive score of Romano et al. with its random part at its mean: sets grow where the prediction is unsure.
    """
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    return torch.empty_like(probs).scatter_(-1, order, ordered.cumsum(-1) - ordered / 2)


def weights_of(count: int, groups: Int[Tensor, "n"] | None = None) -> Float[Tensor, "n"]:
    """How much each of `count` examples counts, one new example (or group) having 1: 1, or 1 / size of its group."""
    if groups is None:
        return torch.ones(count, dtype=torch.float64)
    _, index, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    return 1 / sizes.double()[index]


@dataclass(frozen=True, eq=False)
class LeftOutScores:
    """How little left-out examples conform: one minus the probability of the truth, or deviations between it and the mean."""

    __repr__ = brief

    values: Float[Tensor, "n"]
    weights: Float[Tensor, "n"]

    @classmethod
    def of(cls, values: Float[Tensor, "n"], groups: Int[Tensor, "n"] | None = None) -> LeftOutScores:
        """Scores of examples, or of groups of them."""
        values, order = values.detach().cpu().double().sort()
        return cls(values, weights_of(len(values), None if groups is None else groups.cpu())[order])

    def threshold(self, coverage: float) -> float:
        """The score that a new example stays below with about this probability; infinite where there are too few."""
        _check(coverage, self.values)
        return float(_upper(self.values[None], self.weights, coverage)[0])


def split_threshold(scores: Float[Tensor, "n"], coverage: float, groups: Int[Tensor, "n"] | None = None) -> float:
    """The score that a new example stays below with probability `coverage`; infinite where n is too small to say."""
    return LeftOutScores.of(scores, groups).threshold(coverage)


def class_sets(
    probs: Float[Tensor, "m classes"], threshold: float, score: ClassScores = improbability
) -> Bool[Tensor, "m classes"]:
    """Classes whose score is up to the threshold, and always the most probable one."""
    return _with_the_likeliest(score(probs) <= threshold, probs)


def left_out_sets(
    left_out: Float[Tensor, "n classes"],
    targets: Int[Tensor, "n"],
    new: Float[Tensor, "folds m classes"],
    folds: Int[Tensor, "n"],
    coverage: float,
    *,
    score: ClassScores = improbability,
    groups: Int[Tensor, "n"] | None = None,
    kind: Kind = "plus",
) -> Bool[Tensor, "m classes"]:
    """Which classes are in the set of each new input, from predictions that left examples out.

    A class is in the set unless its score exceeds the scores of at least coverage · (n + 1) left-out examples, each compared
    under the predictor that left it out. Costs O(folds · m · classes · log n).

    Args:
        left_out: probabilities of each example by the predictor that did not see its fold.
        targets: their true classes.
        new: probabilities of the new inputs by each of these predictors.
        folds: which predictor left which example out, from 0; for leave-one-out `torch.arange(n)`.
        coverage: 1 − α.
        score: how little a class conforms.
        groups: examples that belong together; a group lies in one fold.
        kind: "plus", or "minmax" with a guarantee of `coverage` itself.
    Returns:
        A mask; the class that is the most probable on average is always in the set.
    """
    _check(coverage, left_out, new)
    _check_folds(folds, groups, len(left_out), len(new))
    own = score(left_out).gather(-1, targets[:, None])[:, 0].double()
    weights, scores = weights_of(len(own), groups).to(own.device), score(new).double()
    if kind == "minmax":
        inside = scores.min(0).values <= _upper(own[None], weights, coverage)[0]
        return _with_the_likeliest(inside, new.mean(0))
    below = torch.zeros_like(scores[0])
    for fold in folds.unique().tolist():
        mine, order = own[folds == fold].sort()
        mass = torch.cat((weights.new_zeros(1), weights[folds == fold][order].cumsum(0)))
        below += mass[torch.searchsorted(mine, scores[fold].contiguous())]
    # A hair of room: sums of group weights round.
    return _with_the_likeliest(below < coverage * (weights.sum() + 1) - 1e-9, new.mean(0))


def split_intervals(mean: Float[Tensor, "m"], deviation: Float[Tensor, "m"], threshold: float) -> Float[Tensor, "m 2"]:
    """Lower and upper ends: `threshold` deviations (of the prediction, or ones) to both sides of the mean."""
    return torch.stack((mean - threshold * deviation, mean + threshold * deviation), -1)


def left_out_intervals(
    residuals: Float[Tensor, "n"],
    new: Float[Tensor, "folds m"],
    folds: Int[Tensor, "n"],
    coverage: float,
    *,
    deviations: Float[Tensor, "folds m"] | None = None,
    groups: Int[Tensor, "n"] | None = None,
    kind: Kind = "plus",
) -> Float[Tensor, "m 2"]:
    """Lower and upper ends for new inputs, from predictions that left examples out.

    Args:
        residuals: |target − left-out prediction| of each example, divided by the left-out deviation where `deviations` is given.
        new: predictions at the new inputs by each predictor that left a fold out.
        folds: which of them left which example out, from 0; for leave-one-out `torch.arange(n)`.
        coverage: 1 − α.
        deviations: each predictor's standard deviations at the new inputs: intervals are wider where it is less sure.
        groups: examples that belong together; a group lies in one fold.
        kind: "plus", or "minmax" with a guarantee of `coverage` itself.
    Returns:
        One row a new input; infinite ends where n is too small for the coverage.
    """
    _check(coverage, residuals, new)
    _check_folds(folds, groups, len(residuals), len(new))
    residuals, new = residuals.double(), new.double()
    wide = torch.ones_like(new) if deviations is None else deviations.double()
    weights = weights_of(len(residuals), groups).to(residuals.device)
    if kind == "minmax":
        reach = _upper(residuals[None], weights, coverage)[0] * wide
        return torch.stack(((new - reach).min(0).values, (new + reach).max(0).values), -1)
    ends = []
    for part in torch.arange(new.shape[1], device=new.device).split(max(INPUTS_AT_ONCE // len(residuals), 1)):
        centre, reach = new[:, part][folds].T, wide[:, part][folds].T * residuals
        ends.append(
            torch.stack((-_upper(reach - centre, weights, coverage), _upper(centre + reach, weights, coverage)), -1)
        )
    return torch.cat(ends) if ends else new.new_empty(0, 2)


def _upper(values: Float[Tensor, "m n"], weights: Float[Tensor, "n"], coverage: float) -> Float[Tensor, "m"]:
    """The least value in each row with coverage · (total weight + 1) at or below it; infinite where there is none."""
    ordered, order = values.sort(-1)
    enough = weights[order].cumsum(-1) >= coverage * (weights.sum() + 1) - 1e-9
    first = enough.int().argmax(-1, keepdim=True)
    return torch.where(enough.any(-1), ordered.gather(-1, first)[..., 0], torch.inf)


def _with_the_likeliest(
    inside: Bool[Tensor, "m classes"], probs: Float[Tensor, "m classes"]
) -> Bool[Tensor, "m classes"]:
    return inside.scatter(-1, probs.argmax(-1, keepdim=True), True)


def _check(coverage: float, *given: Tensor) -> None:
    if not 0 < coverage < 1:
        raise ValueError(f"a coverage lies between 0 and 1, not {coverage}")
    if len(given[0]) == 0:
        raise BadData("a set needs examples that were left out, and there are none: give calibration data.")
    if not all(bool(torch.isfinite(x).all()) for x in given):
        raise BadData("left-out predictions or scores are not all finite: look for NaN in the inputs or the network.")


def _check_folds(folds: Tensor, groups: Tensor | None, count: int, predictors: int) -> None:
    if len(folds) != count or (groups is not None and len(groups) != count):
        raise SizeMismatch(
            f"{count} examples need as many folds and groups, not {len(folds)}"
            + ("." if groups is None else f" and {len(groups)}.")
        )
    if int(folds.min()) < 0 or int(folds.max()) >= predictors:
        raise SizeMismatch(
            f"folds name predictors 0 to {predictors - 1}, not {int(folds.min())} to {int(folds.max())}."
        )
    if groups is not None and len(torch.unique(torch.stack((groups, folds.to(groups)), 1), dim=0)) > len(
        groups.unique()
    ):
        raise BadData("a group lies in several folds: what belongs together is left out together.")
