"""Fitting a head for classes: all candidates with and without each fold, then the stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.heads.checks import checked_features, checked_labels
from posterity.heads.classes import ClassHead, HeadMember
from posterity.heads.recipe import HeadCandidate, HeadRecipe
from posterity.heads.softmax import SoftmaxProblems, modes
from posterity.heads.views import KINDS, Axes, Kind, View
from posterity.heads.words import Words
from posterity.kernel.stacking import LEAST, Temperatures, log_scores, mixed, stacked


@dataclass(frozen=True, eq=False)
class ClassFit:
    """A head, what it says of examples that were left out, and what it was made from."""

    head: ClassHead
    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    folds: Int[Tensor, " n"]
    judged: Int[Tensor, " m"]
    """The examples that were left out once."""
    left_out: Float[Tensor, "m classes"]
    """Their log probabilities, by heads that had not seen their fold."""
    words: Words | None = None
    recipe: HeadRecipe = field(default_factory=HeadRecipe)


def classify(
    features: Tensor,
    labels: Tensor,
    folds: Int[Tensor, " n"],
    *,
    classes: int | None = None,
    words: Words | None = None,
    unlabelled: Tensor | None = None,
    recipe: HeadRecipe | None = None,
) -> ClassFit:
    """Fit a head to features and class indices.

    Every candidate is fitted without each fold; the labels of the fold then settle its temperature, its weight, and one
    temperature of the stack. Examples that remain count n/n_remaining each, so that a head without a fold is as sure of itself
    as the whole one. With one label a class nothing is left out, and the recipe's beliefs speak alone.

    Args:
        folds: which examples are left out together; -1 is never left out.
        classes: how many there are, where the last may have no label.
        words: prior means from the names of the classes. Without it every class needs a label.
        unlabelled: more rows of the same kind: they too settle how features are centred and scaled.
    """
    x = checked_features(features)
    y, count = checked_labels(labels, folds, len(x), classes, words)
    more = None if unlabelled is None else checked_features(unlabelled, x.shape[1])
    if words is not None:
        words.check_width(x.shape[1])
    work = _Workspace(x, y, folds.detach().cpu().long(), count, more, words, recipe or HeadRecipe())
    head, left_out = work.stack()
    return ClassFit(head, x, y, work.folds, work.judged, left_out, words, work.recipe)


@dataclass(frozen=True, eq=False)
class _FittedCandidate:
    """A fitted candidate: its weights on all features, and logits of the examples that were left out."""

    candidate: HeadCandidate
    rows: Float[Tensor, "d classes"]
    bias: Float[Tensor, " classes"]
    logits: Float[Tensor, "m classes"]


@dataclass(frozen=True, eq=False)
class _TrainingRows:
    """The training rows in one view."""

    view: View
    rows: Float[Tensor, "n d"]
    axes: Axes
    inputs: Float[Tensor, "n side"]
    """Coordinates along the axes, and a one for the bias."""


@dataclass(frozen=True, eq=False)
class _Workspace:
    x: Float[Tensor, "n d"]
    y: Int[Tensor, " n"]
    folds: Int[Tensor, " n"]
    classes: int
    more: Float[Tensor, "u d"] | None
    words: Words | None
    recipe: HeadRecipe

    @cached_property
    def seen(self) -> dict[Kind, _TrainingRows]:
        every = self.x if self.more is None else torch.cat([self.x, self.more])
        made = {}
        for kind in KINDS:
            view = View.of(kind, every)
            rows = view(self.x)
            axes = Axes.of(rows)
            coordinates = rows @ axes.vectors
            made[kind] = _TrainingRows(view, rows, axes, torch.cat([coordinates, rows.new_ones(len(rows), 1)], 1))
        return made

    @cached_property
    def present(self) -> Int[Tensor, " present"]:
        """Classes with a label. The others are judged by their names alone, and no label speaks against them."""
        return self.y.unique()

    @cached_property
    def targets(self) -> Float[Tensor, "n present"]:
        return (self.y[:, None] == self.present).double()

    @cached_property
    def shift(self) -> Float[Tensor, " classes"]:
        """Log frequencies; a class without a label is as frequent as the others are on average."""
        counts = self.y.bincount(minlength=self.classes).double()
        return torch.where(counts > 0, counts, counts[self.present].mean()).log().sub(counts[self.present].mean().log())

    @property
    def spread(self) -> float:
        """How many columns share the variance of the rows at unit length: (Σ v)² / Σ v². Rows that are all equal have one."""
        variances = self.seen["unit"].rows.var(0, correction=0)
        return max(1.0, float(variances.sum().square() / variances.square().sum().clamp_min(1e-300)))

    @cached_property
    def plan(self) -> tuple[tuple[Kind, ...], tuple[float, ...], int]:
        """Views, strengths, and how many folds are refitted: as many as the budget of products allows."""
        n, side = self.seen["unit"].inputs.shape
        whole = int(self.folds.max()) + 1
        one = 4.0 * n * side * len(self.present) * 25
        choices = [(KINDS, self.recipe.strengths, whole), (KINDS[:1], self.recipe.strengths, whole)]
        choices += [(KINDS[:1], self.recipe.strengths[:1], folds) for folds in range(whole, 0, -1)]
        for views, strengths, folds in choices:
            if one * len(views) * len(strengths) * (folds + 1) <= self.recipe.budget:
                return views, strengths, folds
        return choices[-1]

    @cached_property
    def remaining(self) -> Float[Tensor, "problems n"]:
        """Weights of the examples: without each fold in turn, and last with all."""
        kept = torch.stack(
            [*(self.folds != k for k in range(self.plan[2])), torch.ones_like(self.folds, dtype=torch.bool)]
        )
        return kept.double() * (len(self.y) / kept.double().sum(1, keepdim=True).clamp_min(1))

    @cached_property
    def judged(self) -> Int[Tensor, " m"]:
        """Examples that are left out, and whose class has others that are not."""
        left = (self.folds >= 0) & (self.folds < self.plan[2])
        others = (self.remaining[self.folds.clamp(0, self.plan[2])] > 0) & (self.y[:, None] == self.y)
        return (left & others.any(1)).nonzero().flatten()

    @property
    def alone(self) -> bool:
        """Whether beliefs speak alone."""
        return not len(self.judged) and self.recipe.alone is not None

    @property
    def judged_labels(self) -> Int[Tensor, " m"]:
        return self.y[self.judged]

    def softmax(self, view: Kind, choices: Sequence[tuple[float, float]]) -> list[_FittedCandidate]:
        """Softmax heads for pairs of a strength and a size of the names' means."""
        seen, (runs, n) = self.seen[view], self.remaining.shape
        names = None if self.words is None else seen.rows @ self.words.directions.mT
        strengths, sizes = (
            torch.tensor(v, dtype=torch.float64).repeat_interleave(runs) for v in zip(*choices, strict=True)
        )
        precisions = strengths[:, None].repeat(1, seen.inputs.shape[1])
        precisions[:, -1] = self.recipe.bias

        def offsets(index: Tensor) -> Tensor:
            flat = self.shift[self.present].expand(n, len(index), -1)
            return flat if names is None else flat + sizes[index, None] * names[:, None, self.present]

        problems = SoftmaxProblems(
            seen.inputs, self.targets, self.remaining.repeat(len(choices), 1), precisions, offsets
        )
        found = modes(problems, self.recipe.tolerance * max(n, 20)).unflatten(0, (len(choices), runs))
        return [
            self._entry(HeadCandidate(view, "softmax", strength, size), weights, names)
            for (strength, size), weights in zip(choices, found, strict=True)
        ]

    def discriminants(self, view: Kind) -> list[_FittedCandidate]:
        """One discriminant for each shrinkage, where every fold leaves enough to estimate a covariance from."""
        parts = [self.targets[w > 0] for w in self.remaining]
        # Examples less the classes that have any.
        freedom = min(len(targets) - int((targets.sum(0) > 0).sum()) for targets in parts)
        if not self.recipe.shrinkages or freedom < max(len(self.present), 2) or len(parts) == 1:
            return []
        z = self.seen[view].inputs[:, :-1]
        found = torch.stack(
            [discriminants(z[w > 0], self.targets[w > 0], self.recipe.shrinkages) for w in self.remaining], 1
        )
        return [
            self._entry(HeadCandidate(view, "discriminant", shrinkage), weights, None)
            for shrinkage, weights in zip(self.recipe.shrinkages, found, strict=True)
        ]

    def _entry(
        self, candidate: HeadCandidate, weights: Float[Tensor, "problems side present"], names: Tensor | None
    ) -> _FittedCandidate:
        """Weights along the axes become weights on features; classes without a label keep their names' means."""
        seen, d = self.seen[candidate.view], self.x.shape[1]
        rows, bias = self.x.new_zeros(d, self.classes), self.x.new_zeros(self.classes)
        logits = self.x.new_zeros(len(self.judged), self.classes)
        if names is not None:
            assert self.words is not None
            rows, logits = candidate.size * self.words.directions.mT, candidate.size * names[self.judged]
        rows[:, self.present] += seen.axes.vectors @ weights[-1, :-1]
        bias[self.present] += weights[-1, -1]
        fold = self.folds[self.judged]
        for k in range(self.plan[2]):
            of = (fold == k).nonzero().flatten()
            logits[of[:, None], self.present] += seen.inputs[self.judged[of]] @ weights[k]
        return _FittedCandidate(candidate, rows, bias, logits)

    def entries(self) -> list[_FittedCandidate]:
        """All candidates. Where a class has a name and no label, only names can speak for it."""
        views, strengths, _ = self.plan
        made = []
        if len(self.present) == self.classes and self.alone:
            made = [self.softmax(view, [(strengths[0], 0.0)])[0] for view in views]
            none = [self.x.new_zeros(size, self.classes) for size in (self.x.shape[1], 1, 0)]
            made.append(_FittedCandidate(HeadCandidate("unit", "frequencies", 0.0), none[0], none[1][0], none[2]))
        elif len(self.present) == self.classes:
            for view in views:
                made += [*self.softmax(view, [(s, 0.0) for s in strengths]), *self.discriminants(view)]
        if self.words is not None:
            made += self.softmax("unit", [(strengths[0], size) for size in self.recipe.sizes])
        return made

    def stack(self) -> tuple[ClassHead, Float[Tensor, "m classes"]]:
        """Entries are added beyond the grids' ends while an end has most of the weight."""
        entries = self.entries()
        while True:
            weights, temperatures, log_probs = self._weighed(entries)
            more = self._beyond(entries, weights)
            if more is None:
                break
            entries.append(more)
        kept = [i for i in range(len(entries)) if float(weights[i]) > LEAST]
        shares = (weights[kept] / weights[kept].sum()).tolist()
        zero = torch.zeros_like(self.shift)
        pooled = mixed([(s, log_probs[i]) for s, i in zip(shares, kept, strict=True)])
        whole = Temperatures.by_left_out(pooled, zero, self.judged_labels, 0.0, self.recipe.narrow, 0.02)
        if len(self.judged) == 0:
            whole = Temperatures((1.0,), (1.0,))
        members = tuple(
            HeadMember(entries[i].candidate, s, temperatures[i], entries[i].rows, entries[i].bias)
            for s, i in zip(shares, kept, strict=True)
        )
        views = {kind: self.seen[kind].view for kind in KINDS}
        strength = self.recipe.strengths[0]
        head = ClassHead(views, members, self.shift, whole, self.seen["unit"].axes, strength, 0.0)
        fitted = head.log_probs(self.x).exp()
        curvature = float((fitted * (1 - fitted)).mean(0).mean())
        return ClassHead(views, members, self.shift, whole, head.axes, strength, curvature), whole(pooled, zero)

    def _weighed(self, entries: list[_FittedCandidate]) -> tuple[Tensor, list[Temperatures], list[Tensor]]:
        recipe, labels = self.recipe, self.judged_labels
        temperatures = [
            Temperatures.by_left_out(
                e.logits, self.shift, labels, recipe.log_temperature(e.candidate), recipe.spread, recipe.wide
            )
            for e in entries
        ]
        log_probs = [t(e.logits, self.shift) for t, e in zip(temperatures, entries, strict=True)]
        scores = torch.stack([log_scores(p, labels) for p in log_probs])
        counts = torch.tensor([recipe.count(e.candidate) for e in entries], dtype=torch.float64)
        named = torch.tensor([e.candidate.size > 0 for e in entries])
        if self.alone and not bool(named.all()):
            columns = self.spread
            alone = counts.new_tensor([recipe.count_alone(e.candidate, columns) for e in entries])[~named]
            counts[~named] = alone / alone.sum()
        if bool(named.any()) and not bool(named.all()):
            # Labels that can be left out speak for names by themselves; names that explain no label lose their pseudo-count.
            evidence = max(-20.0, min(self._evidence_for_names(), 20.0 if len(labels) == 0 else 0.0))
            counts[named] *= math.exp(evidence)
        return stacked(scores, counts), temperatures, log_probs

    def _evidence_for_names(self) -> float:
        """The log probability of the labels by the classes' names alone, less that by chance."""
        assert self.words is not None
        recipe, size = self.recipe, sorted(self.recipe.sizes)[len(self.recipe.sizes) // 2]
        logits = size * self.seen["unit"].rows @ self.words.directions.mT
        centre = recipe.log_temperature(HeadCandidate("unit", "softmax", recipe.strengths[0]))
        none = self.y[:0]
        belief = Temperatures.by_left_out(logits[:0], self.shift, none, centre, recipe.spread, recipe.wide)
        chance = log_scores(self.shift.expand(len(self.y), -1), self.y)
        return float((log_scores(belief(logits, self.shift), self.y) - chance).sum())

    def _beyond(self, entries: list[_FittedCandidate], weights: Tensor) -> _FittedCandidate | None:
        """The next candidate where the weakest strength of a view, or the largest size, outweighs the rest of its grid."""
        if len(self.judged) == 0:
            return None
        for view in self.plan[0]:
            of = {e.candidate.strength: float(w) for e, w in zip(entries, weights, strict=True)
                  if e.candidate.view == view and e.candidate.method == "softmax" and not e.candidate.size}  # fmt: skip
            least = min(of, default=0.0)
            if len(of) > 1 and of[least] > max(0.1, 0.5 * sum(of.values())) and least > self.recipe.weakest:
                return self.softmax(view, [(least / 32, 0.0)])[0]
        named = {e.candidate.size: float(w) for e, w in zip(entries, weights, strict=True) if e.candidate.size}
        most = max(named, default=0.0)
        if named and named[most] > max(0.1, 0.5 * sum(named.values())) and most < 1e3:
            return self.softmax("unit", [(self.recipe.strengths[0], 2 * most)])[0]
        return None


def discriminants(
    inputs: Float[Tensor, "n r"], targets: Float[Tensor, "n classes"], shrinkages: Sequence[float]
) -> Float[Tensor, "shrinkages rows classes"]:
    """Linear discriminants, one covariance shrunk towards a multiple of the identity: weights for inputs with a one appended.

    log p(class | z) = z S⁻¹ m − ½ m S⁻¹ m + const., S = (1 − λ) S_within + λ tr(S_within)/r. Class frequencies are added
    elsewhere. A class without an example has its mean at the origin. One Cholesky factor a shrinkage.
    """
    counts = targets.sum(0)
    means = (targets.mT @ inputs) / counts.clamp_min(1)[:, None]
    residuals = inputs - targets @ means
    within = residuals.mT @ residuals / max(1, len(inputs) - int((counts > 0).sum()))
    found = []
    for shrinkage in shrinkages:
        covariance = (1 - shrinkage) * within
        covariance.diagonal().add_(shrinkage * within.diagonal().mean() + torch.finfo(within.dtype).tiny)
        rows = torch.cholesky_solve(means.mT, torch.linalg.cholesky(covariance))
        found.append(torch.cat([rows, -0.5 * (rows * means.mT).sum(0, keepdim=True)]))
    return torch.stack(found)
