"""How much more labels are worth: the learning curve that left-out folds draw, continued."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.errors import BadData, NoData
from posterity.heads.fitting import ClassFit, classify
from posterity.kernel.stacking import log_scores

SHARES = (0.5, 0.65, 0.8)
"""Shares of the labels of each class that points of the curve are fitted to."""
REPEATS = 3
DRAWS = 40
"""Resampled curves behind the interval."""
USUAL = 0.35
PULL = 0.6
"""How much the belief in the usual exponent counts, in squared logarithms of sizes."""


@dataclass(frozen=True)
class Worth:
    """The expected fall of the NLL, in nats an example, with an interval of about 90 %."""

    labels: int
    nll: float
    """What the NLL is expected to be now."""
    gain: float
    low: float
    high: float
    power: float
    """The curve's exponent: NLL falls like n to minus this."""

    def __str__(self) -> str:
        return f"{self.labels} more labels: NLL {self.nll:.3f} − {self.gain:.3f} ({self.low:.3f} to {self.high:.3f})"


def worth(fit: ClassFit, k: int, generator: torch.Generator | None = None) -> Worth:
    """What k more labels, drawn like those that are there, are expected to be worth.

    Heads fitted to a part of the labels are judged by the rest; NLL(n) = a n^(−b) is fitted to the points and to the NLL of
    left-out folds, and continued to n + k. The interval is that of refitting the curve to resampled examples.

    Raises:
        BadData: if k is not positive.
        NoData: if no class has three labels, so that no curve can be drawn.
    """
    if k < 1:
        raise BadData(f"the worth of {k} labels is asked for: give a positive number.")
    counts = fit.labels.bincount(minlength=fit.head.classes)
    if int(counts.max()) < 3:
        raise NoData(f"no class has three labels yet (the most is {int(counts.max())}): a learning curve needs them.")
    points = [_point(fit, share, generator) for share in SHARES for _ in range(REPEATS)]
    n = len(fit.labels)
    if len(fit.judged):
        size = n * (1 - 1 / max(2, int(fit.folds.max()) + 1))
        points.append((size, -log_scores(fit.left_out, fit.labels[fit.judged])))
    gains = []
    for draw in range(DRAWS + 1):
        means = [_mean(losses, draw, generator) for _, losses in points]
        a, b = _power_law([size for size, _ in points], means)
        now, later = a * n**-b, a * (n + k) ** -b
        gains.append((now - later, now, b))
    first, spread = gains[0], sorted(gain for gain, _, _ in gains[1:])
    low, high = (spread[round(q * (DRAWS - 1))] for q in (0.05, 0.95))
    return Worth(k, first[1], first[0], low, high, first[2])


def _point(fit: ClassFit, share: float, generator: torch.Generator | None) -> tuple[float, Float[Tensor, " judged"]]:
    """The size of a part of the labels, and the losses of the rest by a head that was fitted to it."""
    kept = torch.zeros(len(fit.labels), dtype=torch.bool)
    for c in fit.labels.unique():
        own = (fit.labels == c).nonzero().flatten()
        order = own[torch.randperm(len(own), generator=generator)]
        kept[order[: max(1, round(share * len(own)))]] = True
    folds = _compact(torch.where(kept, fit.folds, -1)[kept])
    part = classify(
        fit.features[kept],
        fit.labels[kept],
        folds,
        classes=fit.head.classes,
        words=fit.words,
        unlabelled=fit.features,
        recipe=fit.recipe,
    )
    return float(kept.sum()), -log_scores(part.head.log_probs(fit.features[~kept]), fit.labels[~kept])


def _compact(folds: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Folds renumbered without gaps."""
    present = folds[folds >= 0].unique()
    return torch.where(folds >= 0, torch.searchsorted(present, folds.clamp_min(0)), -1)


def _mean(losses: Float[Tensor, " judged"], draw: int, generator: torch.Generator | None) -> float:
    """The mean of all losses, or (from the first draw on) of as many drawn with replacement."""
    if draw:
        losses = losses[torch.randint(len(losses), (len(losses),), generator=generator)]
    return max(float(losses.mean()), 1e-6)


def _power_law(sizes: list[float], means: list[float]) -> tuple[float, float]:
    """a and b of a n^(−b) by least squares of logarithms; b is pulled towards the usual one and is not negative."""
    x, y = ([math.log(v) for v in values] for values in (sizes, means))
    mx, my = sum(x) / len(x), sum(y) / len(y)
    square = sum((v - mx) ** 2 for v in x) + PULL
    b = max(0.0, -(sum((v - mx) * (w - my) for v, w in zip(x, y, strict=True)) - PULL * USUAL) / square)
    return math.exp(my + b * mx), b
