"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.sets.cells import NUMBERS, cell
from posterity_studies.studies.sets.reading import verdict
from posterity_studies.studies.sets.showing import draw, tables

CLASSES = (
    "wine", "breast cancer", "iris", "ionosphere", "heart disease", "digits", "vowels", "leaves", "power demand",
    "arrowheads", "gun point", "newsgroups", "reuters", "dtd", "ucmerced", "mnist",
)  # fmt: skip

STUDY = Study(
    id="sets",
    claim="Left-out predictions give sets of the coverage asked for that are smaller than those of a calibration split.",
    data="sixteen classifications and four regressions, 60 labels, nominal coverage 90 %; softmax regression and kernel "
    "ridge regression",
    grid={
        Preset.smoke: grid(data=["made-up", "diabetes"], examples=[30], seed=range(2), coverage=[0.9], tested=[50]),
        Preset.cpu: grid(seed=range(5), data=[*CLASSES, *NUMBERS], examples=[60], coverage=[0.9], tested=[500]),
        Preset.paper: grid(
            data=[*CLASSES, *NUMBERS], examples=[20, 30, 60, 100], seed=range(50), coverage=[0.9], tested=[500]
        ),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "The functions are those of `posterity.predictive.sets`; the predictors are small on purpose, so that those of ten folds "
        "cost little. The split trains on one half of the labels and calibrates on the other.",
        "Intervals have the same length everywhere for split conformal, and nearly so for the others.",
        "A class is in a set by its probability; the most probable one always is, for all ways alike.",
    ),
)
