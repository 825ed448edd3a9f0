"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.bound_shape.cells import cell, source
from posterity_studies.studies.bound_shape.reading import verdict
from posterity_studies.studies.bound_shape.showing import draw, tables

ALPHAS = [0.1, 0.3, 1.0, 3.0, 10.0]

BETAS = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0]


def surfaces(
    seeds: int, alphas: Sequence[float], betas: Sequence[float], examples: int, measured: int, draws: int, steps: int
) -> list[dict[str, Any]]:
    return grid(
        seed=range(seeds), alphas=[list(alphas)], betas=[list(betas)], examples=[examples], measured=[measured],
        draws=[draws], steps=[steps], weight=[0.01], gamma=[100.0],
    )  # fmt: skip


STUDY = Study(
    id="bound-shape",
    claim="The approximate bound has the shape of the true one over α and β: their optima are close.",
    paper="Figure 6",
    data="MNIST (60,000) → NotMNIST (11,840), LeNet-5; true errors by 10 single draws on 300 training images",
    grid={
        Preset.smoke: surfaces(1, [0.1, 1.0], [1.0, 10.0], 2000, 50, 2, 2),
        Preset.cpu: surfaces(5, ALPHAS, BETAS, 60000, 300, 10, 200),
        Preset.paper: surfaces(5, ALPHAS, BETAS, 60000, 11840, 100, 2000),
    },
    cell=cell,
    source=source,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "Catoni values with the best c, as the paper reports them: estimates, not certificates. “True” puts in the mean "
        "error of single draws on training images where the approximation has its Taylor expansion; the KL divergence "
        "is exact in both.",
        "The learned prior is 0.01 times the source's curvature plus γ = 100: with γ near the paper's and a fifth of "
        "its data the KL divergence alone makes every value one, and the surface is flat.",
        "With exact algebra one number is enough: α = 1 and the β of the last column are least over all α, β and τ.",
    ),
)
