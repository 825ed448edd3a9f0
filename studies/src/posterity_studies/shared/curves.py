"""Curves with their spread over seeds: accuracy over examples a class, or over the temperature of draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from posterity.plot.canvas import COLOURS, canvas, legend, logarithmic, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHAPES = ("o", "s", "^", "v", "D", "P")
Values = Sequence[float] | Sequence[Sequence[float]]
"""One number for each place on the axis, or such a row for each seed."""


def small_data(counts: Sequence[int], values: Mapping[str, Values], ax: Axes | None = None) -> Axes:
    """Curves over the number of examples a class, one for each method, with the spread over seeds where there are several.

    Args:
        counts: examples a class.
        values: for each method its accuracies (or other measures), one for each count, or one row for each seed.
        ax: axes to draw on; new ones by default.
    Returns:
        The axes; the counts are on a logarithmic axis, bars are 95 % intervals of the mean over seeds.

    Example:
        >>> small_data([1, 10, 100], {"learned": [0.5, 0.7, 0.9], "isotropic": [0.1, 0.4, 0.9]})
    """
    ax = _curves(counts, values, ax)
    logarithmic(ax)
    ax.set_xticks(list(counts), [f"{c:,}" for c in counts])
    ax.minorticks_off()
    return titled(ax, "small data", "examples a class", "accuracy")


def cold_posterior(temperatures: Sequence[float], values: Mapping[str, Values], ax: Axes | None = None) -> Axes:
    """Curves over the temperature of draws: does a posterior have to be cooled before its draws are any good?

    Args:
        temperatures: of the posterior; 1 is the posterior itself.
        values: for each method its accuracies, one for each temperature, or one row for each seed.
        ax: axes to draw on; new ones by default.
    Returns:
        The axes.

    Example:
        >>> cold_posterior([0.01, 0.1, 1.0], {"learned": [0.9, 0.9, 0.9], "isotropic": [0.9, 0.6, 0.1]})
    """
    ax = _curves(temperatures, values, ax)
    logarithmic(ax)
    return titled(ax, "cold posterior", "temperature of the draws", "accuracy")


def _curves(places: Sequence[float], values: Mapping[str, Values], ax: Axes | None) -> Axes:
    ax = canvas(ax)
    for number, (name, rows) in enumerate(values.items()):
        y = torch.as_tensor(rows, dtype=torch.float64)
        if y.shape[-1] != len(places) or y.ndim > 2:
            raise ValueError(
                f'"{name}" has values of shape {tuple(y.shape)}: {len(places)} are needed, or rows of so many'
            )
        style: dict[str, Any] = {"color": list(COLOURS.values())[number % len(COLOURS)], "lw": 1.8, "label": name}
        style |= {"marker": SHAPES[number % len(SHAPES)], "ms": 5}
        if y.ndim == 2 and len(y) > 1:
            # Student's t would be wider for few seeds; the caption of a study says which it takes.
            half = 1.96 * y.std(0) / len(y) ** 0.5
            ax.errorbar(list(places), y.mean(0).tolist(), yerr=half.tolist(), capsize=2, **style)
        else:
            ax.plot(list(places), y.reshape(-1).tolist(), **style)
    legend(ax)
    return ax
