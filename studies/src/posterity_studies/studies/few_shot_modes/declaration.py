"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.shared.shots import MADE_UP, SETS, UNKNOWN
from posterity_studies.studies.few_shot_modes.cells import cell
from posterity_studies.studies.few_shot_modes.reading import verdict
from posterity_studies.studies.few_shot_modes.showing import draw, tables

FIRST, THEN = ("ucmerced", "dtd", "oxford_pets"), ("cub200", "caltech101", "cifar100")
TRAINING = {"lr": 1e-4, "batch": 4, "head": 1.0, "edition": 2}
"""The paper's rate and batch; and the precision of the new head's own prior, the same for all."""


def _cells(
    sets: Sequence[str], shots: int, seeds: Sequence[int], who: Sequence[str], unknown: str = UNKNOWN, **options: int
) -> list[dict[str, Any]]:
    """Seed by seed, so that a run that is cut short has whole pairs."""
    sizes = {
        "size": 96,
        "classes": 10,
        "tested": 15,
        "strangers": 60,
        "epochs": 20,
        "pieces": 6,
        "looks": 5,
        "draws": 20,
    } | options
    return [
        {"set": name, "unknown": unknown, "shots": shots, "seed": seed, **sizes, **TRAINING, "who": one}
        for seed in seeds
        for name in sets
        for one in who
    ]


PRIORS, NETWORKS = ("isotropic", "learned"), ("networks",)
SMALL = {"classes": 4, "tested": 4, "strangers": 8, "epochs": 4, "pieces": 2, "looks": 2, "draws": 3}
MADE_UP_UNKNOWN = f"{MADE_UP} unknown"
STUDY = Study(
    id="few-shot-modes",
    claim="Trained to a mode with few labels, ResNet-50's last stage under the prior that ImageNet left predicts better than "
    "under an isotropic prior around the same weights.",
    paper="Section 4.3, Figures 5, 9 and 10",
    data="UC Merced, DTD, Oxford-IIIT Pets, ten classes a seed, 5 shots; CIFAR-10 as unknown inputs; ResNet-50",
    grid={
        Preset.smoke: _cells([MADE_UP], 3, [0], [*PRIORS, *NETWORKS], MADE_UP_UNKNOWN, **SMALL),
        Preset.cpu: _cells(FIRST, 5, range(3), PRIORS)
        + _cells(FIRST, 5, range(3), NETWORKS)
        + _cells(THEN, 5, range(3), PRIORS)
        + _cells(("dtd", "cifar100"), 15, range(3), PRIORS)
        + _cells(THEN, 5, range(3), NETWORKS),
        Preset.paper: [
            one
            for shots in (5, 7, 15, 25)
            for one in _cells(
                list(SETS),
                shots,
                range(10),
                [*PRIORS, *NETWORKS],
                size=224,
                tested=1000,
                strangers=500,
                epochs=100,
                looks=20,
                draws=100,
            )
        ],
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "Declared before the first test figure was seen: arms, grids, rule of choice, sets, shots, seeds, their order, and the "
        "verdict. For each of accuracy, NLL, ECE and AUROC of unknown inputs, with the 95 % interval of paired differences over "
        "sets × seeds: a lead over the paper's isotropic prior and over the tuned one is the claim; a lead over the first alone "
        "is 'as published, no gain over a tuned isotropic prior'; neither is a failure to reproduce.",
        "All arms: the last stage (ten convolutions, 15 million weights) and a new head at zero, trained along by Adam with the "
        "paper's rate 1e-4 and batches of 4, in pieces of 20 epochs; in each the rate is halved after two epochs without "
        "progress. No validation picture takes part in training.",
        "One rule for all: the strength of the prior whose network has the least validation NLL after one piece, from neighbour "
        "to neighbour; it is trained on until the last quarter of a piece gains no more than 0.01 nats a picture, six pieces at "
        "most. Around that mode the scales (none, or β of least McAllester's or Catoni's bound) and τ in steps of a hundred, of "
        "least validation NLL over 5 draws; then 20 draws on test pictures. As many validation as training pictures, as in the "
        "paper, which chose by validation accuracy.",
        "Edition 1 had one piece for all, settled by the training objective of γ = 1e-8 on one draw of UC Merced (seed 7, which "
        "is not in the study). Its only cell, isotropic priors on UC Merced with seed 0, is in the results file: the objective "
        "under tuned priors still fell by one to four nats in its last quarter. Only that was changed, by the training objective "
        "alone; the test figures of that cell had been seen, none of the learned prior's.",
        "Isotropic priors are around the pre-trained weights. The paper's γ are 1e-6, 1e-8 and 1e-10: beside the pull of the "
        "pictures none differs from zero, so one mode (γ = 1e-8) serves all three, and one around zero, whose posterior is "
        "the same. The tuned grid has γ from 1e-2 to 1e4, and begins at 100. The learned prior is a share of 1e-3 to 1 of "
        "K-FOC's curvature on ImageNet (1,000 pictures at 224 px, for all 1,281,167) plus γ = 1e-8; the search begins at 0.1.",
        "The new head has a prior of its own, of precision 1 around zero, the same in all arms but the networks without a "
        "prior. The paper does not say what its heads have.",
        "Posteriors: K-FOC of the training pictures at the mode. Beside an isotropic prior in its own eigenvectors, beside the "
        "learned one by its diagonal in the prior's.",
        "Reduced: 96 px instead of 224 (maps of the third stage are kept on disk), norm layers as constants, ten classes a "
        "seed, at most 15 test pictures a class, 60 unknown ones, 20 draws of 100. Fifteen shots are run where a set has thirty "
        "training pictures a class (DTD, CIFAR-100); all classes, 25 shots and the whole network are left to the `paper` "
        "preset.",
        "Networks without a prior: one, an ensemble of five orders of the pictures, and MC dropout before the head at the rate "
        "0.01. All are trained in the same way, at the one rate 1e-4.",
        "The learned prior's force is taken exactly every 16 steps and moved along by its leading directions between them, which "
        "leaves the mode as it is: on UC Merced with seed 7, which is not in the study, 20 epochs at the full share end with the "
        "same validation NLL to three digits as with 8 steps (which the first learned cell has).",
        "Every piece begins at the full rate again, and its first steps lift the objective most where the prior is stiffest: at "
        "the full share six pieces did not end flat (last table).",
        "The paper's figures are pictures without numbers: only signs can be compared.",
    ),
)
