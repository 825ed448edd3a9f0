"""How firmly a prior holds its weights: the eigenvalues of its precisions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from posterity.errors import NoBlocks
from posterity.gaussian import Gaussian
from posterity.gaussian.spectrum import Spectrum
from posterity.gaussian.spectrum import spectrum as of_matrix
from posterity.plot.canvas import COLOURS, canvas, legend, logarithmic, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 8
"""Blocks with a line and a name of their own; of more, the largest."""


def spectrum(gaussian: Gaussian | Mapping[str, Gaussian], ax: Axes | None = None) -> Axes:
    """The eigenvalues of a prior's precision: how firmly it holds the directions of each block.

    Args:
        gaussian: a prior or posterior, drawn block by block; or several by name, all blocks of each together.
        ax: axes to draw on; new ones by default.
    Returns:
        The axes: shares of the directions over their precision, on logarithmic axes.
    Raises:
        NoBlocks: if no block is small enough for a look at its eigenvalues.

    Example:
        >>> pt.plot.spectrum(pt.load("watch.safetensors"))
        >>> pt.plot.spectrum({"prior": fit.prior, "posterior": fit.posterior})
    """
    ax = canvas(ax)
    lines = _blocks(gaussian) if isinstance(gaussian, Gaussian) else {n: _pooled(g) for n, g in gaussian.items()}
    lines = {name: line for name, line in lines.items() if line}
    if not lines:
        raise NoBlocks("no block is small enough for a look at its eigenvalues.")
    # Nearly all directions are held alike, and what was learned is in the few others: shares are on a logarithmic axis too.
    least = min(share for line in lines.values() for _, share in line if share > 0) / 2
    for (name, line), colour in zip(lines.items(), 2 * list(COLOURS.values()), strict=False):
        x, y = zip(*((value, max(share, least)) for value, share in line), strict=True)
        ax.plot(x, y, color=colour, lw=1.8, label=name, drawstyle="steps-mid", marker="o" if len(line) == 1 else None)
    logarithmic(ax)
    ax.set_yscale("log")
    ax.set_ylim(least, 2)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    legend(ax)
    return titled(ax, "how firmly weights are held", "precision (eigenvalues)", "share of directions")


def _blocks(gaussian: Gaussian) -> dict[str, list[tuple[float, float]]]:
    largest = sorted(gaussian.precision, key=lambda name: -gaussian.precision[name].size)[:SHOWN]
    found = {name: of_matrix(matrix) for name, matrix in gaussian.precision.items() if name in largest}
    return {name: _line(s) for name, s in found.items() if s is not None}


def _line(found: Spectrum) -> list[tuple[float, float]]:
    """(value, share) at the middle of every bin, on the logarithmic axis."""
    if len(found.density) == 1:
        return [(found.median, 1.0)]
    low = math.log(max(found.smallest, found.largest * 1e-16))
    width = (math.log(found.largest) - low) / len(found.density)
    return [(math.exp(low + (k + 0.5) * width), share) for k, share in enumerate(found.density)]


def _pooled(gaussian: Gaussian) -> list[tuple[float, float]]:
    """All blocks together, by quarters of a power of ten."""
    shares: dict[int, float] = {}
    for matrix in gaussian.precision.values():
        found = of_matrix(matrix)
        for value, share in _line(found) if found else []:
            place = round(4 * math.log10(max(value, 1e-300)))
            shares[place] = shares.get(place, 0.0) + share * matrix.size / gaussian.size
    return (
        [(10 ** (place / 4), shares.get(place, 0.0)) for place in range(min(shares), max(shares) + 1)] if shares else []
    )
