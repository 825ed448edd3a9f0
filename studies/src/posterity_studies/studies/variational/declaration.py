"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.studies.variational.cells import cell, source
from posterity_studies.studies.variational.reading import verdict
from posterity_studies.studies.variational.showing import draw, tables

PAIRS = (("notmnist", "mnist"), ("mnist", "notmnist"))


def _cells(pairs: tuple[tuple[str, str], ...], seeds: range, shots: int, tested: int) -> list[dict[str, object]]:
    return [
        {"source": source, "target": target, "seed": seed, "shots": shots, "tested": tested}
        for seed in seeds
        for source, target in pairs
    ]


STUDY = Study(
    id="variational",
    claim="The Gaussian of greatest ELBO needs no width to be chosen, and is not ahead of Laplace once the width is.",
    data="LeNet-5 from 2,000 images of one set to 10 a class of another, whose classes are new",
    grid={
        Preset.smoke: _cells(PAIRS[1:], range(1), 2, 20),
        Preset.cpu: _cells(PAIRS, range(3), 10, 1000),
        Preset.paper: _cells(PAIRS, range(10), 10, 1000),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    source=source,
    notes=(
        "The strength is the one that leave-one-out chose for Laplace. With τ and T chosen each posterior has the width and "
        "temperature of its own least leave-one-out NLL, in closed form.",
    ),
)
