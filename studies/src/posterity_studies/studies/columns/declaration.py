"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.columns.cells import cell, source
from posterity_studies.studies.columns.reading import verdict
from posterity_studies.studies.columns.showing import draw, tables

STUDY = Study(
    id="columns",
    claim="Columns whose width is chosen by leave-one-out predict as well as columns that validation data chooses for.",
    data="split MNIST after 2,000 images of NotMNIST, five tasks of 10 images a class, LeNet-5",
    grid={
        Preset.smoke: grid(seed=[0], shots=[5], steps=[2], examples=[2000]),
        Preset.cpu: grid(seed=range(2), shots=[10], steps=[100], examples=[2000]),
        Preset.paper: grid(seed=range(10), shots=[10], steps=[100], examples=[2000]),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    source=source,
    notes=(
        "Two priors to choose between; validation has 25 more images a class. Each task is judged on 200 test images.",
        "With floors kept the same strengths have the form that `pt.learn` leaves; the others are nearest pairs, whose floor is "
        "lost and which hold the column less. So give several priors, looser ones too.",
    ),
)
