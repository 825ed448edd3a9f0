"""Axes to draw on, in the house style, and the colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posterity.errors import NotInstalled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GRID = "#222223", "#dededf"
# Okabe and Ito's colours, distinct for every kind of colour vision.
COLOURS = {
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "purple": "#8f5bb0",
    "ochre": "#b08900",
    "grey": "#77777a",
}


def figure(width: float = 4.4, height: float = 3.3) -> Figure:
    """An empty figure that no window knows of.

    Raises:
        NotInstalled: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NotInstalled("pictures need matplotlib, which is not installed: pip install matplotlib.") from None
    return Figure(figsize=(width, height), layout="constrained")


def canvas(ax: Axes | None, width: float = 4.4, height: float = 3.3) -> Axes:
    """The axes given, or new ones of that size in inches, without the lines that no one reads."""
    ax = figure(width, height).subplots() if ax is None else ax
    ax.grid(True, color=GRID, lw=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(INK)
    ax.tick_params(which="both", colors=INK, labelsize=9.5)
    ax.xaxis.label.set(color=INK, size=10)
    ax.yaxis.label.set(color=INK, size=10)
    return ax


def titled(ax: Axes, title: str, x: str = "", y: str = "") -> Axes:
    """The same axes with a title at the left and names of both axes."""
    ax.set_title(title, loc="left", fontsize=10.5, color=INK)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    return ax


def logarithmic(ax: Axes) -> None:
    """A logarithmic x axis whose numbers are plain text: 0.01, 1, 1e+05."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(numticks=6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def legend(ax: Axes) -> None:
    """A legend without a frame, where something has a name."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=9, labelcolor=INK)
