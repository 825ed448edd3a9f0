"""The pictures of the site: from the demo's committed results, and one drawing of the idea. Colours follow the page's."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from posterity.pages import svg
from posterity.plot.canvas import GRID, INK
from posterity_studies.demo import declaration, reading, showing
from posterity_studies.engine.declaration import Preset, Record
from posterity_studies.engine.ledger import Ledger
from posterity_studies.folders import SHIPPED

# Fonts that formulas would need are not there everywhere; these pictures have no formulas.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


def draw(name: str) -> str:
    """One picture as SVG."""
    return svg(PICTURES[name](), name)


def _records() -> list[Record]:
    """The demo as committed: what `posterity demo --preset paper` wrote."""
    ledger = Ledger(SHIPPED / "demo.jsonl")
    return ledger.of(declaration.study(SHIPPED).cells(Preset.paper))


def _portrait() -> Record:
    near = reading.typical(_records())
    cells = [c for c in declaration.study(SHIPPED, near).cells(Preset.paper) if c.arguments["part"] == "portrait"]
    (record,) = Ledger(SHIPPED / "demo.jsonl").of(cells)
    return record


def _reliability(method: str) -> Figure:
    records = _records()
    return showing.reliability(records, method, reading.seconds(records)[-1])


def _handed_down() -> Figure:
    """Two weights of a network: what is believed before, after the source, and after a few examples."""
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    titles = (
        "1  before any data: all directions alike",
        "2  after many examples: a learned prior",
        "3  after a few new ones",
    )
    for axis, title, stage in zip(figure.subplots(1, 3), titles, range(3), strict=True):
        axis.set_title(title, loc="left", fontsize=10.5, color=INK)
        axis.set_xlim(-2.6, 2.6)
        axis.set_ylim(-2.2, 2.2)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
        for side in axis.spines.values():
            side.set_color(GRID)
        _stage(axis, stage)
    return figure


def _stage(axis: Axes, stage: int) -> None:
    isotropic, learned, rest = (showing.COLOURS[name] for name in ("isotropic", "learned", "none"))
    turn = np.array([np.cos(np.pi / 7), np.sin(np.pi / 7)])
    if stage == 0:
        _gaussian(axis, (0, 0), 1.7, 1.7, isotropic)
    if stage >= 1:
        _gaussian(axis, (0.2, 0.1), 2.1, 0.42, learned if stage == 1 else rest)
    if stage == 1:
        axis.annotate("free: the source does not mind", xy=(0.2, 0.1) + 1.5 * turn, xytext=(-2.4, 1.75), fontsize=9,
                      color=INK, arrowprops={"arrowstyle": "->", "color": INK})  # fmt: skip
        axis.annotate("held: the source would suffer", xy=(0.32, -0.22), xytext=(-1.2, -1.85), fontsize=9,
                      color=INK, arrowprops={"arrowstyle": "->", "color": INK})  # fmt: skip
    if stage == 2:
        _gaussian(axis, tuple((0.2, 0.1) + 1.15 * turn), 0.5, 0.26, learned)
        axis.annotate("moves where it may", xy=tuple((0.2, 0.1) + 0.75 * turn), xytext=(-2.3, -1.6), fontsize=9,
                      color=INK, arrowprops={"arrowstyle": "->", "color": INK})  # fmt: skip


def _gaussian(axis: Axes, centre: tuple[float, float], wide: float, narrow: float, colour: str) -> None:
    for times, opacity in ((1.0, 0.16), (0.66, 0.22), (0.33, 0.3)):
        axis.add_patch(
            Ellipse(centre, 2 * wide * times, 2 * narrow * times, angle=180 / 7, color=colour, alpha=opacity, lw=0)
        )
    axis.plot(*centre, "o", color=colour, ms=5)


PICTURES: dict[str, Callable[[], Figure]] = {
    "handed-down": _handed_down,
    "watch-accuracy": lambda: showing.over_seconds(_records(), "accuracy"),
    "watch-nll": lambda: showing.over_seconds(_records(), "nll"),
    "reliability-before": lambda: _reliability("none"),
    "reliability-tuned": lambda: _reliability("tuned"),
    "reliability-learned": lambda: _reliability("learned"),
    "spectrum": lambda: showing.spectrum(_portrait()),
}
