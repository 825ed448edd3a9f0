"""Bounds by how the scales are chosen, and what a single pair costs: tables and figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.studies.exact_algebra.reading import gammas, values_at

CHOICES = {
    "untuned": "α = β = τ = 1",
    "grid": "the paper's grid of α, β",
    "per layer": "α, β, τ per layer by Adam",
    "one number": "one β for all layers",
}

BLOCKS = {"0": "conv 6×26", "3": "conv 16×151", "7": "linear 120×401", "9": "linear 84×121", "11": "linear 10×85"}


def tables(records: Sequence[Record]) -> list[Table]:
    bounds, pairs, layers = [], [], []
    for gamma in gammas(records):
        for choice, name in CHOICES.items():
            row = [
                shown(*interval(values_at(records, gamma, f"{choice} {bound}")), digits=4)
                for bound in ("catoni", "mcallester")
            ]
            bounds.append([f"{gamma:g}", name, *row])
        found = {
            key: values_at(records, gamma, key) for key in ("exact kl", "pair kl", "exact sampled", "pair sampled")
        }
        pairs.append([f"{gamma:g}", *(shown(*interval(v)) for v in found.values())])
        for block, name in BLOCKS.items():
            error, logdet = (values_at(records, gamma, f"{what} {block}") for what in ("error", "logdet"))
            layers.append(
                [f"{gamma:g}", name, f"{100 * statistics.mean(error):.2f} %", f"{statistics.mean(logdet):+.3f}"]
            )
    return [
        Table("Bound estimates by how the scales are chosen", ["γ", "scales", "Catoni", "McAllester"], bounds),
        Table(
            "The exact sum and its nearest single pair",
            ["γ", "KL exact", "KL pair", "accuracy exact", "accuracy pair"],
            pairs,
        ),
        Table(
            "Layer by layer: relative error of the pair, and of its log det in nats per parameter",
            ["γ", "layer", "Frobenius", "log det"],
            layers,
        ),
    ]


def draw(records: Sequence[Record]) -> Figure:
    """Bounds by choice of scales; the pair's log det layer by layer."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for gamma in gammas(records):
        _dots(left, [values_at(records, gamma, f"{choice} catoni") for choice in CHOICES], f"γ = {gamma:g}")
        _dots(right, [values_at(records, gamma, f"logdet {block}") for block in BLOCKS], f"γ = {gamma:g}")
    left.set_yticks(range(len(CHOICES)), list(CHOICES.values()))
    left.set_xlabel("Catoni value")
    right.set_yticks(range(len(BLOCKS)), list(BLOCKS.values()))
    right.set_xlabel("log det of the nearest pair − exact, nats per parameter")
    for axis in (left, right):
        axis.invert_yaxis()
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    return figure


def _dots(axis: Axes, samples: Sequence[list[float]], label: str) -> None:
    spreads = [interval(values) for values in samples]
    widths = [0.0 if math.isnan(half) else half for _, half in spreads]
    axis.errorbar([mean for mean, _ in spreads], range(len(spreads)), xerr=widths, fmt="o", capsize=3, label=label)
