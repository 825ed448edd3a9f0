"""What is claimed, and which cells test it."""

from __future__ import annotations

from typing import Any

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.exact_algebra.cells import cell, source
from posterity_studies.studies.exact_algebra.reading import verdict
from posterity_studies.studies.exact_algebra.showing import draw, tables


def cells(
    seeds: int, gammas: list[float], examples: int, steps: int, adam: int, tested: int, draws: int
) -> list[dict[str, Any]]:
    return grid(
        seed=range(seeds), gamma=gammas, examples=[examples], steps=[steps], adam=[adam], tested=[tested], draws=[draws]
    )


STUDY = Study(
    id="exact-algebra",
    claim="Exact sums and one number are at least as good as a nearest pair and three scales for every layer.",
    data="MNIST (60,000) → NotMNIST (11,840), LeNet-5; 30 draws on 300 test images",
    grid={
        Preset.smoke: cells(1, [100.0], 2000, 2, 20, 50, 2),
        Preset.cpu: cells(5, [100.0], 60000, 200, 300, 300, 30),
        Preset.paper: cells(5, [1.0, 10.0, 100.0, 1000.0], 60000, 2000, 3000, 10000, 100),
    },
    cell=cell,
    source=source,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "The learned prior is 0.01 times the source's curvature plus γ. Bounds are the paper's estimates (Catoni with "
        "the best c, McAllester), all with exact KL divergences; δ = 0.1.",
        "This is at γ = 100 and τ = 1. At the paper's γ = τ = 1e-5 it is the other way round: there draws from one pair with a "
        "jitter are right and those from the exact sum at chance (study small-data), because the pair holds directions "
        "without curvature that the sum leaves to γ.",
        "Adam has 300 steps of 0.05 from α = β = τ = 1 (3,000 in the paper preset); the one-number search needs no "
        "gradient.",
    ),
)
