"""The demo as a study: which cells there are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from posterity_studies.demo.cells import cell
from posterity_studies.demo.methods import METHODS
from posterity_studies.demo.showing import draw, tables
from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.shared.sources import Recipe

TEMPERATURES = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    source_images: int
    source_epochs: int
    per_class: tuple[int, ...]
    seeds: int
    steps: int
    trials: slice
    curve_per_class: int
    curve_seeds: int
    temperatures: tuple[float, ...]


SMOKE = Size(
    source_images=30,
    source_epochs=3,
    per_class=(1,),
    seeds=2,
    steps=4,
    trials=slice(1, 4, 2),
    curve_per_class=2,
    curve_seeds=1,
    temperatures=(1e-3, 1.0),
)
FULL = Size(
    source_images=500,
    source_epochs=24,
    per_class=(1, 2, 5, 10, 20),
    seeds=5,
    steps=60,
    trials=slice(None),
    curve_per_class=2,
    curve_seeds=3,
    temperatures=TEMPERATURES,
)
SIZES = {Preset.smoke: SMOKE, Preset.cpu: FULL, Preset.paper: FULL}


def recipe(preset: Preset) -> Recipe:
    """How the prior is learned: LeNet-5 on some images of each MNIST digit, one Kronecker pair a layer."""
    size = SIZES[preset]
    return Recipe(
        "mnist-sample",
        size.source_images,
        by_class=True,
        epochs=size.source_epochs,
        lr=2e-3,
        batch_size=128,
        evidence=True,
        one_pair=True,
    )


def demo(prior: Path) -> Study:
    """The study with this prior. Results of another prior are other results, so its fingerprint is among the arguments."""
    fingerprint = hashlib.sha256(prior.read_bytes()).hexdigest()[:12]
    return Study(
        id="demo",
        claim="What a prior learned on one task is worth on the next, where images are few, beside tuned rivals.",
        grid={preset: _cells(size, fingerprint) for preset, size in SIZES.items()},
        cell=partial(cell, prior),
        tables=tables,
        draw=draw,
        version=2,
    )


def _cells(size: Size, prior: str) -> list[dict[str, object]]:
    cells: list[dict[str, object]] = []
    for name, method in METHODS.items():
        common: dict[str, list[Any]] = {
            "method": [name],
            "strengths": [list(method.strengths[size.trials])],
            "steps": [size.steps],
            "prior": [prior],
        }
        cells += grid(experiment=["fits"], per_class=size.per_class, seed=range(size.seeds), **common)
        if name in ("learned", "centred"):
            cells += grid(
                experiment=["temperature"],
                per_class=[size.curve_per_class],
                seed=range(size.curve_seeds),
                temperatures=[list(size.temperatures)],
                **common,
            )
    # The dearest first: no worker is left alone with one at the end.
    return sorted(cells, key=lambda c: (c["experiment"] == "fits", -int(str(c["per_class"]))))
