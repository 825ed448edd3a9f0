"""Classifiers: do they mean what they say, what do they confuse, and what is left when they may pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posterity.plot.canvas import COLOURS, INK, canvas, legend, titled
from posterity.predictive import reliability as binned
from posterity.predictive import score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED, LETTERS = 60, 22
"""Classes whose names fit along a matrix (of more, every tenth has its name), and letters of a name."""


def reliability(
    probs: Tensor, targets: Tensor, ax: Axes | None = None, *, bins: int = 15, label: str | None = None
) -> Axes:
    """A reliability diagram: accuracy by confidence. On the dashed line both agree.

    Args:
        probs: one row of probabilities for each example.
        targets: the right classes.
        ax: axes to draw on; new ones by default.
        bins: of confidence.
        label: a name for a legend, where several are drawn on the same axes.
    Returns:
        The axes. Pale bars are the share of the examples.

    Example:
        >>> pt.plot.reliability(fit.predict(x).probs, y)
    """
    ax = canvas(ax)
    found = binned(probs, targets, bins)
    colour = list(COLOURS.values())[len(ax.get_lines()) // 2 % len(COLOURS)]
    ax.plot([0, 1], [0, 1], color=INK, lw=1, ls=(0, (3, 2)))
    ax.bar(found.confidence, found.share, width=0.8 / bins, color=colour, alpha=0.3, lw=0)
    ax.plot(found.confidence, found.accuracy, color=colour, marker="o", ms=5, lw=1.8, label=label)
    ax.set_xlim(0, 1.02)
    ax.set_ylim(0, 1.02)
    if label:
        legend(ax)
    return titled(ax, f"reliability (ECE {score(probs, targets).ece:.3f})", "confidence", "accuracy")


def confusion(probs: Tensor, targets: Tensor, ax: Axes | None = None, *, classes: Sequence[str] | None = None) -> Axes:
    """A confusion matrix: a row for each true class, shares of the predicted ones.

    Args:
        probs: one row of probabilities for each example.
        targets: the right classes.
        ax: axes to draw on; new ones by default.
        classes: names of the classes.
    Returns:
        The axes.

    Example:
        >>> pt.plot.confusion(fit.predict(x).probs, y, classes=["cat", "dog"])
    """
    count = probs.shape[-1]
    names = [str(i) for i in range(count)] if classes is None else [_short(str(c)) for c in classes]
    longest = max(map(len, names))
    size = max(3.4, min(7.0, 0.34 * count + 1.6)) + 0.06 * longest
    ax = canvas(ax, size + 0.4, size)
    matrix = torch.zeros(count, count, dtype=torch.float64)
    matrix.index_put_(
        (targets.long().cpu(), probs.argmax(-1).cpu()), torch.ones(len(targets), dtype=torch.float64), True
    )
    shares = matrix / matrix.sum(1, keepdim=True).clamp_min(1)
    ax.grid(False)
    ax.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    ticks = list(range(0, count, 1 if count <= NAMED else 10))
    # A row has 72 · 0.75 · size / count points: names are no higher than that.
    small = min(9.5, 300 / count) if count <= NAMED else 9.5
    ax.set_xticks(ticks, [names[i] for i in ticks], rotation=90 if longest > 3 else 0, fontsize=small)
    ax.set_yticks(ticks, [names[i] for i in ticks], fontsize=small)
    if count <= 12:
        for i in range(count):
            for j in range(count):
                if matrix[i, j]:
                    ink = "#fefefe" if shares[i, j] > 0.5 else "#333334"
                    ax.text(j, i, f"{int(matrix[i, j])}", ha="center", va="center", fontsize=8.5, color=ink)
    return titled(ax, "confusion", "predicted class", "true class")


def coverage(probs: Tensor, targets: Tensor, ax: Axes | None = None, *, label: str | None = None) -> Axes:
    """Accuracy over coverage: how good it is on the share of inputs that it is surest of.

    Args:
        probs: one row of probabilities for each example.
        targets: the right classes.
        ax: axes to draw on; new ones by default.
        label: a name for a legend.
    Returns:
        The axes.

    Example:
        >>> pt.plot.coverage(fit.predict(x).probs, y)
    """
    ax = canvas(ax)
    order = probs.max(-1).values.argsort(descending=True, stable=True)
    right = (probs.argmax(-1) == targets)[order].double().cumsum(0)
    kept = torch.arange(1, len(right) + 1, dtype=torch.float64)
    colour = list(COLOURS.values())[len(ax.get_lines()) % len(COLOURS)]
    # The first few answers are a coin or two: below a fiftieth there is nothing to read.
    first = max(1, len(right) // 50) - 1
    ax.plot((kept / len(right))[first:].tolist(), (right / kept)[first:].tolist(), color=colour, lw=1.8, label=label)
    ax.set_xlim(0, 1.02)
    ax.set_ylim(top=1.01)
    if label:
        legend(ax)
    return titled(ax, "accuracy over coverage", "coverage, the surest inputs first", "accuracy")


def _short(name: str) -> str:
    """A long name by its two ends: names that begin alike often end otherwise."""
    half = (LETTERS - 1) // 2
    return name if len(name) <= LETTERS else f"{name[:half]}…{name[-half:]}"
