"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.sets.cells import GROUPED, NUMBERS, cell
from posterity_studies.studies.sets.reading import verdict
from posterity_studies.studies.sets.showing import draw, tables

CLASSES = (
    "wine", "breast cancer", "iris", "ionosphere", "heart disease", "digits", "vowels", "leaves", "power demand",
    "arrowheads", "gun point", "newsgroups", "reuters", "dtd", "ucmerced", "mnist",
)  # fmt: skip
LABELS = (20, 60, 100)

STUDY = Study(
    id="sets",
    claim="A fit's own sets and intervals reach the coverage asked for and are smaller than those of a calibration split.",
    data="sixteen classifications, four regressions and windows of a watch in groups, 20, 60 and 100 labels, nominal coverage "
    "90 %; heads on features",
    grid={
        Preset.smoke: grid(data=["made-up", "diabetes"], examples=[30], seed=range(2), coverage=[0.9], tested=[50]),
        Preset.cpu: grid(
            seed=range(5), examples=LABELS, data=[*CLASSES, *NUMBERS, GROUPED], coverage=[0.9], tested=[500]
        ),
        Preset.paper: grid(
            seed=range(50), examples=LABELS, data=[*CLASSES, *NUMBERS, GROUPED], coverage=[0.9], tested=[500]
        ),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    version=2,
    notes=(
        "“Library” is `pt.head(x, y).predict(new)` and then `.sets(0.9)` or `.interval(0.9)`. The split trains the same head on "
        "one half of the same labels, of every class, and calibrates on the other.",
        "Labels are drawn at random, of a fifth as many classes at most, again until each class has two. Watch: three windows "
        "of each recording, labelled and tested by whole recordings; the library is given the groups, and once not.",
        "A class is in a set by its probability; the most probable one always is, for all ways alike. Intervals are a number of "
        "the prediction's own deviations wide, for all ways alike.",
        "No theorem holds for the library's sets without further assumptions, where split conformal has 1 − α. "
        "`posterity.predictive.sets` has jackknife+ and CV+, with 1 − 2α, for who has the predictors of the folds.",
    ),
)
