"""Regression: what was predicted, beside what came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from posterity.plot.canvas import COLOURS, INK, canvas, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def regression(mean: Tensor, variance: Tensor, targets: Tensor, ax: Axes | None = None) -> Axes:
    """Predictions with their 95 % intervals over the true numbers. On the dashed line they agree.

    Args:
        mean: predicted, one for each example.
        variance: of the predictions, noise included.
        targets: what came.
        ax: axes to draw on; new ones by default.
    Returns:
        The axes; the title says how many of the intervals hold the number that came.

    Example:
        >>> found = fit.predict(x)
        >>> pt.plot.regression(found.mean, found.variance, y)
    """
    ax = canvas(ax)
    mean, variance, targets = (t.detach().double().flatten() for t in (mean, variance, targets))
    half = 1.96 * variance.clamp_min(0).sqrt()
    inside = ((targets - mean).abs() <= half).double().mean()
    low, high = float(targets.min()), float(targets.max())
    ax.plot([low, high], [low, high], color=INK, lw=1, ls=(0, (3, 2)))
    ax.errorbar(
        targets.tolist(), mean.tolist(), yerr=half.tolist(), fmt="o", ms=3.5, lw=0.8, color=COLOURS["blue"], alpha=0.6
    )
    return titled(ax, f"{100 * float(inside):.0f} % inside the 95 % intervals", "what came", "what was predicted")
