"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.studies.continual_large.cells import cell
from posterity_studies.studies.continual_large.methods import LEARNING_RATES, NAMES, RATE, STRENGTHS, TEMPERATURES
from posterity_studies.studies.continual_large.reading import verdict
from posterity_studies.studies.continual_large.showing import draw, tables

SMALL: dict[str, Any] = {
    "columns": "last stage", "size": 96, "classes": [8, 5], "shots": 5, "held": 4, "tested": 10, "batch": 25, "epochs": 8,
    "draws": 3, "strengths": 1,
}  # fmt: skip
"""What two cores carry: the last stage of each column on maps of the stage before, which are kept on disk."""
WHOLE: dict[str, Any] = {"columns": "whole", "size": 224, "batch": 4, "epochs": 20, "draws": 100, "strengths": 2}
"""The paper's: all of ResNet-50 in every column."""
LARGE: dict[str, Any] = {"classes": [1000, 1000], "shots": 15, "held": 5, "tested": 1000}


def _cells(stream: str, seeds: Sequence[int], methods: Sequence[str], **options: Any) -> list[dict[str, Any]]:
    return [{"stream": stream, "seed": seed, "method": name, **options} for seed in seeds for name in methods]


STUDY = Study(
    id="continual-large",
    claim="On ResNet-50, columns with the prior of ImageNet learn a stream of tasks better than with isotropic priors and "
    "better than plain columns, and forget nothing.",
    paper="Section 4.2 and its table",
    data="Caltech-101, UC Merced, Oxford-IIIT Pets, DTD, CUB, CIFAR-10, one after the other; paper preset: Washington RGB-D too",
    grid={
        Preset.smoke: _cells(
            "made up", [0], ["learned", "zero", "pnn 1e-05", "dropout"], batch=8, epochs=2, draws=2, strengths=1
        ),
        # Seed by seed, so that a run that is cut short has something of everything.
        Preset.cpu: _cells("sets", range(3), list(NAMES), **SMALL),
        Preset.paper: [
            *_cells("sets", range(5), list(NAMES), **LARGE, **WHOLE),
            *_cells("washington", range(5), list(NAMES), **WHOLE),
        ],
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "Columns are copies of ResNet-50 with ImageNet's weights, where every learner starts, the prior around zero too, as in "
        "the paper's code. Norm layers stay as ImageNet left them.",
        "Reduced in the cpu preset: columns are the last stage (ten convolutions, 15 million weights) and a head, on maps of the "
        "third stage at 96 px that all columns share, so that one of the paper's four laterals is left, at the last downsampling "
        f"convolution. {SMALL['classes'][0]} classes in the first task and {SMALL['classes'][1]} in each of the others, "
        f"{SMALL['shots']} training, {SMALL['held']} validation and {SMALL['tested']} test pictures a class, {SMALL['epochs']} "
        f"epochs in batches of {SMALL['batch']}, {SMALL['draws']} draws for predictions.",
        "The paper preset has whole columns with all four laterals, 224 px, all classes, 15 shots, batches of 4, 100 draws, two "
        "strengths of each prior to choose from, and the paper's own stream: `posterity study run continual-large --preset paper "
        "--only stream=washington`, with the cropped RGB-D objects in the folder wrgbd of the data root.",
        "Strengths (a, γ) of a · curvature on ImageNet + γ · identity, set in advance in the cpu preset: "
        f"{STRENGTHS['learned'][0]} learned, {STRENGTHS['mean'][0]} isotropic, {STRENGTHS['zero'][0]} around zero. The first two "
        "are of the size that leave-one-out chose in the study last-stage; the last is a weight decay of a few 1e-4. Validation "
        f"chooses each column's temperature, from {TEMPERATURES}.",
        f"Adam's rate is {LEARNING_RATES['pnn']:g}, the paper's, for plain columns and the prior around zero, and "
        f"{LEARNING_RATES['learned']:g} for the other two priors, under which steps are shorter by the prior's own deviation, a "
        "tenth for the isotropic one: only heads move by as much. Rates were looked at on validation pictures of a seed that is "
        "not among these, with twice as many steps or more; with so few as here they were not tried. "
        f"MC dropout has the paper's rate of {RATE:g}, in front of the head.",
        "Every column's posterior is kept in the eigenvectors of ImageNet's curvature (`frames=`), isotropic priors' too: the "
        "Fisher's own diagonal in them. Nothing is decomposed but once for all cells.",
        "Forgetting is checked: at the end every task's test outputs, and the first task's predictions by draws, are computed "
        "again and compared bit by bit.",
    ),
)
