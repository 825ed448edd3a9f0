"""Continual learning as a matrix: every task after every task."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from posterity.plot.canvas import canvas, titled
from posterity_studies.shared.continual.metrics import Continual

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def continual(
    result: Continual, ax: Axes | None = None, *, measure: Literal["accuracy", "nll", "ece"] = "accuracy"
) -> Axes:
    """The matrix of a stream: a row for each task that was learned, how well each task so far does after it.

    Args:
        result: what `follow` gives.
        ax: axes to draw on; new ones by default.
        measure: "accuracy", "nll" or "ece".
    Returns:
        The axes. A column that fades from the top down is forgetting.

    Example:
        >>> continual(follow(learner, stream))
    """
    size = max(3.2, 0.55 * len(result.tasks) + 1.6)
    ax = canvas(ax, size + 0.3, size)
    values = [[math.nan if j is None else getattr(j, measure) for j in row] for row in result.matrix]
    seen = [v for row in values for v in row if math.isfinite(v)]
    low, high = (min(seen), max(seen)) if seen else (0.0, 1.0)
    better = "Blues" if measure == "accuracy" else "Blues_r"
    ax.grid(False)
    ax.imshow(values, cmap=better, vmin=low - 0.25 * (high - low or 1), vmax=high)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if math.isfinite(value):
                strong = (value - low) / (high - low or 1)
                dark = strong > 0.5 if measure == "accuracy" else strong < 0.5
                text = f"{100 * value:.0f}" if measure == "accuracy" else f"{value:.2f}"
                ax.text(j, i, text, ha="center", va="center", fontsize=9, color="#fefefe" if dark else "#333334")
    ax.set_xticks(range(len(result.tasks)), result.tasks, rotation=45)
    ax.set_yticks(range(len(result.tasks)), result.tasks)
    unit = "accuracy, %" if measure == "accuracy" else measure.upper()
    return titled(ax, f"{unit} of each task", "task", "after learning")
