"""Softmax regression on few rows of many features: solved in the span of the training rows, where it loses nothing.

A penalised head has no component outside that span, so n coordinates stand for any number of features. What a new input has
beyond the span matters to variances alone, by its length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

STEPS = 500
ARRIVED = 1e-6
"""Of the gradient's length an example, in the preconditioned coordinates."""


@dataclass(frozen=True, eq=False)
class Span:
    """An orthonormal basis of the training rows, a one for the bias among them, and their coordinates (float64)."""

    rows: Tensor
    basis: Tensor
    lengths: Tensor
    """Singular values of the rows."""
    bias: bool = True
    """Whether a one for the bias is among the features."""

    @classmethod
    def of(cls, x: Tensor, bias: bool = True) -> Span:
        """From features (n, d)."""
        whole = with_one(x) if bias else x.double()
        values, vectors = torch.linalg.eigh(whole @ whole.mT)
        kept = values > 1e-9 * values[-1]
        lengths, left = values[kept].sqrt(), vectors[:, kept]
        return cls(left * lengths, whole.mT @ (left / lengths), lengths, bias)

    def coordinates(self, x: Tensor) -> Tensor:
        """Of other inputs, within the span."""
        return self._whole(x) @ self.basis

    def beyond(self, x: Tensor) -> Tensor:
        """The length of what other inputs have outside the span."""
        rest = self._whole(x).square().sum(-1) - self.coordinates(x).square().sum(-1)
        return rest.clamp_min(0).sqrt()

    def reduced(self, x: Tensor) -> Tensor:
        """Coordinates and the length beyond them (float32): all that a head with an isotropic prior can tell of an input."""
        return torch.cat((self.coordinates(x), self.beyond(x)[:, None]), 1).float()

    def _whole(self, x: Tensor) -> Tensor:
        return with_one(x) if self.bias else x.double()


def with_one(x: Tensor) -> Tensor:
    """Features with a one for the bias, in float64."""
    return torch.cat((x.double(), torch.ones(len(x), 1, dtype=torch.float64)), 1)


def fit(
    rows: Tensor, lengths: Tensor, y: Tensor, classes: int, precision: float, weights: Tensor | None = None,
    start: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The head (coordinates, classes) of least summed NLL plus precision / 2 times its squared length.

    L-BFGS in coordinates in which the curvature is near the identity.
    """
    each = torch.ones(len(y), dtype=torch.float64) if weights is None else weights
    # The softmax's curvature is near 1/classes an example while classes are separated badly: an order of size is enough.
    scale = (precision + lengths.square() * (1 / classes)).rsqrt()[:, None]
    b = torch.zeros(rows.shape[1], classes, dtype=torch.float64) if start is None else start / scale
    b = b.clone().requires_grad_()
    tolerance = ARRIVED * len(y)
    optimiser = torch.optim.LBFGS(
        [b], max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=tolerance / b.numel() ** 0.5,
        tolerance_change=1e-12,
    )  # fmt: skip

    def closure() -> Tensor:
        optimiser.zero_grad()
        head = scale * b
        nll = torch.nn.functional.cross_entropy(rows @ head, y, reduction="none")
        loss = (each * nll).sum() + precision / 2 * head.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return (scale * b).detach()


def folds_of(y: Tensor, count: int, seed: int = 0) -> Tensor:
    """Which fold each example is left out with: classes spread evenly."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    order = order[y[order].argsort(stable=True)]
    folds = torch.empty(len(y), dtype=torch.int64)
    folds[order] = torch.arange(len(y)) % count
    return folds


class Refits:
    """Outputs of every example by heads that were fitted without its fold, for any precision of the prior."""

    def __init__(self, span: Span, y: Tensor, folds: int) -> None:
        self.span, self.y, self.classes = span, y, int(y.max()) + 1
        self.folds = folds_of(y, folds)
        self.heads: dict[int, list[Tensor]] = {}

    def outputs(self, k: int) -> Tensor:
        """With a precision of 10^(k/2)."""
        near = min(self.heads, key=lambda other: abs(other - k), default=None)
        found = torch.empty(len(self.y), self.classes, dtype=torch.float64)
        made = []
        for fold in range(int(self.folds.max()) + 1):
            kept = self.folds != fold
            start = None if near is None else self.heads[near][fold]
            rows = self.span.rows
            made.append(fit(rows[kept], self.span.lengths, self.y[kept], self.classes, 10 ** (k / 2), start=start))
            found[~kept] = rows[~kept] @ made[-1]
        self.heads[k] = made
        return found


def descend(score: Callable[[int], float], start: int, low: int, high: int) -> int:
    """The place of least score on a line of places, from neighbour to neighbour."""
    seen: dict[int, float] = {}

    def at(k: int) -> float:
        if k not in seen:
            seen[k] = score(k)
        return seen[k]

    here = start
    while True:
        best = min((k for k in (here, here - 1, here + 1) if low <= k <= high), key=at)
        if at(best) >= at(here):
            return here
        here = best
