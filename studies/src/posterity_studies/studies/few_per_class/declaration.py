"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.studies.few_per_class.cells import cell, source
from posterity_studies.studies.few_per_class.reading import verdict
from posterity_studies.studies.few_per_class.showing import draw, tables

TASKS = (
    ("mnist", "fashion_mnist", "new"),
    ("fashion_mnist", "notmnist", "new"),
    ("notmnist", "mnist", "new"),
    ("fashion_mnist", "mnist", "new"),
    ("digits", "mnist", "keep"),
    ("mnist", "digits", "keep"),
)


def _cells(
    tasks: Iterable[tuple[str, str, str]], each: Sequence[int], draws: Iterable[int], tested: int
) -> list[dict[str, Any]]:
    return [
        {"source": source, "target": target, "head": head, "each": n, "draw": draw, "tested": tested}
        for n in each
        for source, target, head in tasks
        for draw in draws
    ]


STUDY = Study(
    id="few-per-class",
    claim="With few examples a class, leaving out one of every class at a time predicts better than leaving out one alone.",
    data="six pairs of image sets, 2,000 images of the source (1,000 of digits), 1 to 5 a class of the target, LeNet-5",
    grid={
        Preset.smoke: _cells([("mnist", "notmnist", "new")], [1, 2], [0], 50),
        Preset.cpu: _cells(TASKS, [1, 2, 3, 5], range(3), 600),
        Preset.paper: _cells(TASKS, [1, 2, 3, 5], range(10), 600),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    source=source,
    notes=(
        "Tested on other training images of the target: no study's test images are used.",
        "The rule was settled on training images of these sets too, and the strength for one example a class on two of the "
        "three draws, so that its row flatters.",
    ),
)
