"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.shared.datasets import UCI
from posterity_studies.studies.regression.cells import cell
from posterity_studies.studies.regression.reading import verdict
from posterity_studies.studies.regression.showing import draw, tables

STUDY = Study(
    id="regression",
    claim="A Laplace posterior gives a small regression network calibrated error bars, from one training.",
    data="UCI concrete, energy and yacht, standard splits; one hidden layer of 50 units",
    grid={
        Preset.smoke: grid(data=["yacht"], split=[0], epochs=[3]),
        Preset.cpu: grid(split=range(20), data=list(UCI), epochs=[40]),
        Preset.paper: grid(split=range(20), data=list(UCI), epochs=[400]),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "A tenth of the training data is held out. Each method tries three prior precisions (by validation error) and "
        "five noise precisions (by validation NLL); an ensemble then trains four networks more, dropout (5 %) three.",
        "All twenty standard splits, 40 epochs of Adam; the paper preset has 400. The curvature is KFAC "
        "with exact labels.",
    ),
)
