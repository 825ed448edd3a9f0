"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.studies.few_shot.cells import cell
from posterity_studies.studies.few_shot.pictures import MADE_UP, SETS, UNKNOWN
from posterity_studies.studies.few_shot.reading import verdict
from posterity_studies.studies.few_shot.showing import draw, tables

WHO = ({"who": "ours", "edition": 1}, {"who": "rivals", "edition": 1})
"""Raise an edition when the library, or a rival's code, predicts otherwise: only those cells are computed anew."""
TEN = 10
"""Classes that a seed draws of every set where a processor has to do; None is all of them."""


def _heads(
    sets: Sequence[str],
    shots: Sequence[int],
    size: int,
    seeds: Sequence[int],
    classes: int | None = None,
    unknown: str = UNKNOWN,
) -> list[dict[str, Any]]:
    return [
        {
            "kind": "heads",
            "set": s,
            "unknown": unknown,
            "size": size,
            "shots": n,
            "classes": classes,
            "seed": seed,
            **who,
        }
        for n in shots
        for seed in seeds
        for s in sets
        for who in WHO
    ]


def _all(size: int, seeds: Sequence[int], classes: int | None = None) -> list[dict[str, Any]]:
    return [
        *_heads(list(SETS), [5, 7], size, seeds, classes),
        *_heads(["dtd", "cifar100"], [15], size, seeds, classes),
    ]


STUDY = Study(
    id="few-shot",
    claim="On a frozen ResNet-50, an exact head with scales by leave-one-out makes better use of few labels than tuned heads "
    "that need some of them for validation.",
    paper="Section 4.3",
    data="DTD, UC Merced, Oxford-IIIT Pets, CUB (28 classes), Caltech-101, CIFAR-100; CIFAR-10 as unknown inputs; ResNet-50",
    grid={
        Preset.smoke: _heads([MADE_UP], [3], 96, [0], unknown=f"{MADE_UP} unknown"),
        Preset.cpu: _all(96, range(5), TEN),
        Preset.paper: [*_all(224, range(10)), *_all(96, range(10))],
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(),
)
