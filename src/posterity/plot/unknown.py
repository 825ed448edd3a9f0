"""Unknown inputs: their scores, and what they look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posterity.errors import BadData
from posterity.plot.canvas import COLOURS, INK, canvas, legend, titled
from posterity.predictive import ood_auroc

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def unknown(
    familiar: Tensor, foreign: Tensor | None = None, ax: Axes | None = None, *, bins: int = 30, rate: float = 0.05
) -> Axes:
    """Scores for unknown inputs as histograms, familiar inputs beside foreign ones.

    Args:
        familiar: scores of inputs like those learned from.
        foreign: scores of others, if there are any.
        ax: axes to draw on; new ones by default.
        bins: of the scores.
        rate: of false alarms; a line stands where inputs are called unknown at that rate.
    Returns:
        The axes; the title has the AUROC where there are both.

    Example:
        >>> pt.plot.unknown(fit.predict(x).unknown, fit.predict(x_foreign).unknown)
    """
    ax = canvas(ax)
    both = {"familiar": familiar.detach().double().flatten()}
    if foreign is not None:
        both["foreign"] = foreign.detach().double().flatten()
    every = torch.cat(list(both.values()))
    edges = torch.linspace(float(every.min()), float(every.max()) + 1e-12, bins + 1)
    for (name, values), colour in zip(both.items(), COLOURS.values(), strict=False):
        weights = [1 / len(values)] * len(values)
        ax.hist(values.tolist(), bins=edges.tolist(), weights=weights, color=colour, alpha=0.55, label=name)
    ax.axvline(1 - rate, color=INK, lw=1, ls="--")
    title = "scores for unknown inputs"
    if foreign is not None:
        title += f" (AUROC {ood_auroc(both['familiar'], both['foreign']):.3f})"
        legend(ax)
    return titled(ax, title, f"score; the line: {rate:.0%} false alarms", "share of inputs")


def gallery(
    images: Tensor,
    scores: Tensor,
    ax: Axes | None = None,
    *,
    labels: Sequence[str] | None = None,
    rows: int = 3,
    columns: int = 6,
) -> Axes:
    """The images with the highest scores, the most unusual first, on one pair of axes.

    Args:
        images: (n, channels, height, width) with one or three channels, or (n, height, width).
        scores: one for each image, as `prediction.unknown`.
        ax: axes to draw on; new ones by default.
        labels: a word for each image: the predicted class, say.
        rows: of images.
        columns: of images.
    Returns:
        The axes.
    Raises:
        BadData: if these are no images.

    Example:
        >>> pt.plot.gallery(x, fit.predict(x).unknown)
    """
    pixels = images.detach().double().cpu()
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        raise BadData(f"images have shape (n, 1 or 3, height, width), not {tuple(images.shape)}.")
    order = scores.detach().flatten().argsort(descending=True, stable=True)[: rows * columns].tolist()
    rows = -(-len(order) // columns)
    ax = canvas(ax, 0.85 * columns, 1.05 * rows + 0.4)
    low, high = float(pixels.min()), float(pixels.max())
    for place, index in enumerate(order):
        row, column = divmod(place, columns)
        image = ((pixels[index] - low) / max(high - low, 1e-12)).expand(3, -1, -1).permute(1, 2, 0)
        ax.imshow(image.numpy(), extent=(column, column + 0.92, 1.25 * row + 0.92, 1.25 * row), aspect="equal")
        word = f"{float(scores[index]):.2f}" + (f" {labels[index]}"[:12] if labels is not None else "")
        ax.text(column + 0.46, 1.25 * row + 1.09, word, ha="center", va="center", fontsize=7.5, color=INK)
    ax.set_xlim(-0.04, columns)
    ax.set_ylim(1.25 * rows, -0.04)
    ax.axis("off")
    return titled(ax, "the most unusual inputs, with their scores")
