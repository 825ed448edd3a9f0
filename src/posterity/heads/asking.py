"""Which examples to label next: those whose labels are expected to change the predictions of a pool the most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.errors import BadData, NoData
from posterity.heads.belief import Belief
from posterity.heads.checks import checked_features, counted
from posterity.heads.classes import CHUNK, ClassHead
from posterity.heads.numbers import NumberHead

TARGETS = 300
"""Rows of the pool that stand for all in the expectation."""
FINALISTS = 2000
"""Candidates that are compared again after every choice."""
LEAST = 1e-3
"""The least curvature of a class that is taken as known."""


def ask(
    head: ClassHead | NumberHead,
    pool: Any,
    k: int,
    *,
    groups: Int[Tensor, " pool"] | None = None,
    labelled: Int[Tensor, " seen"] | None = None,
    generator: torch.Generator | None = None,
    finalists: int = FINALISTS,
    chunk: int = CHUNK,
) -> Int[Tensor, " k"]:
    """The rows of a pool to label next, in the order of their worth.

    Expected predictive information gain (Bickford Smith et al. 2023) to second order in the posterior's covariance c, one for
    all classes: a label at x lowers the expected NLL of a target t by ½ Σ_c h_c(t) c(x, t)² / (c(x, x) + 1/h_c(x)), with
    h = p (1 − p), or one over the noise of a number. Chosen one after another, each changing c by a rank-one term, among the
    `finalists` whose first gain is largest. One pass over the pool in parts, so that memory does not grow with it;
    O(pool · width · targets).

    Args:
        pool: features of candidates: a tensor, an array or a memory map.
        groups: of candidates that belong together at most one is chosen.
        labelled: rows of the pool that have a label already and are not chosen.
        generator: draws the targets.
        finalists: how many candidates stay after the first gain.
        chunk: rows of the pool in memory at a time.
    """
    count = counted(pool)
    free = torch.ones(count, dtype=torch.bool)
    if labelled is not None:
        free[labelled] = False
    left = int(free.sum()) if groups is None else len(groups[free].unique())
    if left == 0:
        raise NoData("no candidate of the pool is without a label: give more inputs.")
    if not 1 <= k <= left:
        raise BadData(f"{k} candidates are asked for, and there are {left} to choose from: give k from 1 to {left}.")
    covariances = _Covariances.of(head, pool, torch.randperm(count, generator=generator)[:TARGETS])
    index = free.nonzero().flatten()
    gains = torch.cat([covariances.gains(covariances.of_rows(pool, part)) for part in index.split(chunk)])
    order = index[gains.argsort(descending=True, stable=True)]
    kept = max(finalists, 4 * k)
    last = order[:kept] if groups is None else _spread(order, groups, kept)
    state = covariances.of_rows(pool, last)
    chosen: list[int] = []
    open_ = torch.ones(len(last), dtype=torch.bool)
    for _ in range(k):
        best = int(torch.where(open_, covariances.gains(state), -torch.inf).argmax())
        chosen.append(int(last[best]))
        open_[best] = False
        if groups is not None:
            open_ &= groups[last] != groups[last[best]]
        state = covariances.after(state, best)
    return torch.tensor(chosen)


def _spread(order: Int[Tensor, " pool"], groups: Int[Tensor, " pool"], most: int) -> Int[Tensor, " kept"]:
    """The first of every group in this order, at most so many."""
    numbers = torch.unique(groups[order], return_inverse=True)[1]
    first = torch.full((int(numbers.max()) + 1,), len(order)).scatter_reduce_(
        0, numbers, torch.arange(len(order)), "amin"
    )
    return order[first.sort().values[:most]]


@dataclass(frozen=True, eq=False)
class _State:
    """Candidates: inputs of the belief, curvatures, and what is left of their covariances after earlier choices."""

    inputs: Float[Tensor, "m d"]
    h: Float[Tensor, "m classes"]
    with_targets: Float[Tensor, "m targets"]
    variance: Float[Tensor, " m"]
    columns: tuple[Float[Tensor, " m"], ...] = ()


@dataclass(frozen=True, eq=False)
class _Covariances:
    """The posterior's covariance with the targets, in single precision: it ranks, it does not report."""

    head: ClassHead | NumberHead
    belief: Belief
    axes: Float[Tensor, "d r"]
    inner: Float[Tensor, " r"]
    """Variances along the axes less the prior's."""
    targets: Float[Tensor, "targets d"]
    h: Float[Tensor, "targets classes"]

    @staticmethod
    def of(head: ClassHead | NumberHead, pool: Any, targets: Int[Tensor, " targets"]) -> _Covariances:
        belief, rows = head.belief, checked_features(pool, head.width, targets)
        inner = (belief.variances - belief.prior).float()
        inputs, h = belief.inputs(rows).float(), _curvature(head, rows)
        return _Covariances(head, belief, belief.axes.vectors.float(), inner, inputs, h)

    def times(self, inputs: Float[Tensor, "m d"], others: Float[Tensor, "k d"]) -> Float[Tensor, "m k"]:
        return inputs @ (others * self.belief.prior + ((others @ self.axes) * self.inner) @ self.axes.mT).mT

    def of_rows(self, pool: Any, index: Int[Tensor, " m"]) -> _State:
        rows = checked_features(pool, self.head.width, index)
        inputs = self.belief.inputs(rows).float()
        variance = inputs.square().sum(1) * self.belief.prior + (inputs @ self.axes).square() @ self.inner
        return _State(inputs, _curvature(self.head, rows), self.times(inputs, self.targets), variance)

    def gains(self, state: _State) -> Float[Tensor, " m"]:
        return ((state.with_targets.square() @ self.h) / (state.variance[:, None] + 1 / state.h)).sum(1)

    def after(self, state: _State, best: int) -> _State:
        """The state after the label of one candidate is known."""
        column = self.times(state.inputs, state.inputs[best : best + 1])[:, 0]
        for earlier in state.columns:
            column = column - earlier * earlier[best]
        root = (column[best].clamp_min(0) + 1 / state.h[best].mean()).sqrt()
        column = column / root
        with_targets = state.with_targets - column[:, None] * (state.with_targets[best] / root)
        variance = (state.variance - column.square()).clamp_min(0)
        return replace(state, with_targets=with_targets, variance=variance, columns=(*state.columns, column))


def _curvature(head: ClassHead | NumberHead, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m classes"]:
    found = head.curvatures(rows).float()
    return found.clamp_min(LEAST) if isinstance(head, ClassHead) else found
