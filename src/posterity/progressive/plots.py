"""Continual learning drawn: the accuracy of every task at every time, and learners side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posterity.progressive.metrics import Continual

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_matrix(found: Continual, title: str = "") -> Figure:
    """R[i][j] as a picture with its numbers: rows are times, columns tasks."""
    from matplotlib.figure import Figure

    r = np.array(found.accuracies())
    figure = Figure(figsize=(1.6 + 0.9 * len(r), 1.2 + 0.6 * len(r)), layout="constrained")
    axis = figure.subplots()
    axis.imshow(np.ma.masked_invalid(r), cmap="cividis", vmin=min(0.5, float(np.nanmin(r))), vmax=1)
    for i, j in zip(*np.nonzero(~np.isnan(r)), strict=True):
        axis.text(j, i, f"{100 * r[i, j]:.1f}", ha="center", va="center", color="black" if r[i, j] > 0.75 else "white")
    axis.set_xticks(range(len(r)), found.tasks, rotation=30, ha="right")
    axis.set_yticks(range(len(r)), [f"after {name}" for name in found.tasks])
    axis.set_title(title or "accuracy in %")
    axis.spines[:].set_visible(False)
    return figure


def draw_courses(learners: Mapping[str, Sequence[Continual]]) -> Figure:
    """Left: mean accuracy over the tasks so far, as they come. Right: parameters so far. One line a learner, runs as a band."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, runs in learners.items():
        course = np.array([[np.nanmean(row) for row in run.accuracies()] for run in runs])
        steps = np.arange(1, course.shape[1] + 1)
        (line,) = left.plot(steps, course.mean(0), marker="o", markersize=4, label=name)
        left.fill_between(steps, course.min(0), course.max(0), color=line.get_color(), alpha=0.12, linewidth=0)
        size = np.cumsum(list(runs[0].parameters.values()))
        right.plot(np.arange(1, len(size) + 1), size, marker="o", markersize=4, color=line.get_color())
    left.set(xlabel="tasks learned", ylabel="mean accuracy over them")
    right.set(xlabel="tasks learned", ylabel="parameters", ylim=(0, None))
    left.legend(frameon=False, fontsize=8)
    for axis in (left, right):
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    return figure
