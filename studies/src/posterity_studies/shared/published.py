"""Every figure that the paper prints or plots, and the settings it names: no other file holds one.

Curves are from the sources of its plots, in `published.json`. Figures 5, 9 and 10 are pictures without numbers.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

DELTA = 0.1
"""The paper's ε, the probability with which a bound may fail. Certificates are at 95 % all the same."""

GAMMAS = (1e-3, 1e-5, 1e-8)
"""Weight decays of the ablations; the one of Figures 2b and 2c is 1e-5. Table 2a does not say which it has."""
EXAMPLES = 54_000
"""Images of NotMNIST that it trains and bounds with: nine tenths of 60,000."""


class Estimate(NamedTuple):
    """A printed mean and its deviation over seeds."""

    mean: float
    spread: float


BOUNDS: dict[str, dict[str, Estimate]] = {
    "baseline": {"catoni": Estimate(0.999, 0.001), "mcallester": Estimate(2.185, 0.557)},
    "grid search": {"catoni": Estimate(0.990, 0.003), "mcallester": Estimate(1.489, 0.041)},
    "learned prior": {"catoni": Estimate(0.978, 0.001), "mcallester": Estimate(1.347, 0.004)},
    "curvature scaling": {"catoni": Estimate(0.925, 0.010), "mcallester": Estimate(1.098, 0.026)},
    "projection": {"catoni": Estimate(0.885, 0.015), "mcallester": Estimate(1.006, 0.031)},
}
"""Table 2a: the ladder of bounds on NotMNIST, five seeds."""

TASKS = ("other", "banana", "coffee mug", "stapler", "flashlight", "apple")
STREAM: dict[str, tuple[Estimate, ...]] = {
    name: tuple(Estimate(*pair) for pair in row)
    for name, row in {
        "pnn 0.001": ((95.7, 0.4), (98.5, 2.3), (100.0, 0.0), (91.7, 1.0), (93.8, 9.1), (93.3, 4.7), (95.5, 2.9)),
        "pnn 1e-05": ((96.7, 0.3), (99.0, 1.2), (100.0, 0.0), (90.7, 2.3), (99.7, 0.4), (94.1, 3.2), (96.7, 1.2)),
        "dropout": ((96.3, 0.1), (99.3, 0.9), (100.0, 0.0), (92.7, 0.8), (99.8, 0.4), (90.4, 5.1), (96.4, 1.2)),
        "zero": ((96.3, 0.3), (95.5, 4.2), (100.0, 0.1), (91.9, 1.7), (100.0, 0.1), (87.7, 7.8), (95.2, 2.4)),
        "mean": ((96.1, 0.3), (98.7, 1.0), (100.0, 0.0), (93.1, 0.6), (100.0, 0.0), (87.8, 6.6), (96.0, 1.4)),
        "learned": ((96.2, 0.2), (98.4, 1.6), (100.0, 0.0), (93.9, 0.9), (100.0, 0.0), (95.1, 4.7), (97.3, 1.2)),
    }.items()
}
"""Table 1: accuracy in % on the tasks of the Washington RGB-D stream, and their average last."""

NEAREST = {"power": Estimate(0.01020, 0.03129), "sum": Estimate(0.10167, 0.22935)}
"""Relative errors over all sizes, scales, weight decays and seeds: the power method's and the factor-wise sum's."""
ITERATIONS = (Estimate(0.793, 0.010), *[Estimate(0.049, 0.001)] * 6)
"""The relative error in iterations 1 to 7."""
ROUNDING = 2e-7
"""Below this the curves of Figure 3 show the rounding of float32, in which they were computed."""

OTHERS = {"S-FSVI": 99.5, "VCL": 98.4}
"""Of other papers: multi-head split MNIST, average accuracy in %, as their authors report it."""


class Point(NamedTuple):
    """A point of a curve with its 95 % interval. Where the curve as printed leaves a point out, the mean is None."""

    x: float
    mean: float | None
    low: float
    high: float

    @property
    def middle(self) -> float:
        """The mean, or the middle of the interval where none is printed."""
        return self.mean if self.mean is not None else (self.low + self.high) / 2


@cache
def _plots() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        files("posterity_studies.shared").joinpath("published.json").read_text()
    )
    return found


def curve(figure: str, name: str) -> dict[float, float]:
    """Means by place of a curve, empty if unknown: "figure 2b", "figure 2c", "figure 7", "figure 8, left", "figure 8, right"."""
    return {float(x): float(y) for x, y in _plots()[figure].get(name, {}).items()}


def kronecker_curve(panel: str, method: str) -> tuple[Point, ...]:
    """A curve of Figure 3, to four digits."""
    return tuple(Point(*point) for point in _plots()["figure 3"][f"{panel} {method}"])
