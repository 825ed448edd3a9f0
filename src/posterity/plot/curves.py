"""The loss over epochs of training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from posterity.laplace import History
from posterity.plot.canvas import COLOURS, canvas, legend, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def training(history: History, ax: Axes | None = None) -> Axes:
    """The loss over epochs of training, on the data and on what was held out.

    Args:
        history: of a fit or of `pt.train`.
        ax: axes to draw on; new ones by default.
    Returns:
        The axes; a dot marks the epoch whose weights were kept.

    Example:
        >>> pt.plot.training(fit.history)
    """
    ax = canvas(ax)
    x = list(range(1, len(history.epochs) + 1))
    lines = {"training": [e.nll for e in history.epochs], "held out": [e.validation_nll for e in history.epochs]}
    for (name, y), colour in zip(lines.items(), COLOURS.values(), strict=False):
        if any(map(math.isfinite, y)):
            ax.plot(x, y, color=colour, lw=1.8, label=name, marker="o" if len(x) == 1 else None)
            if math.isfinite(y[history.best]):
                ax.plot([history.best + 1], [y[history.best]], "o", color=colour, ms=6)
    legend(ax)
    return titled(ax, "training", "epoch", "NLL, nats an example")
