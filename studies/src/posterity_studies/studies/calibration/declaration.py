"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.calibration.cells import cell, source
from posterity_studies.studies.calibration.methods import METHODS
from posterity_studies.studies.calibration.reading import verdict
from posterity_studies.studies.calibration.showing import draw, tables

PAIRS = [("notmnist", "mnist"), ("mnist", "notmnist")]


def _cells(
    pairs: Sequence[tuple[str, str]],
    shots: Sequence[int],
    seeds: int,
    examples: int,
    tested: int,
    methods: Sequence[str],
) -> list[dict[str, object]]:
    base = grid(seed=range(seeds), shots=shots, method=methods, examples=[examples], tested=[tested])
    return [{"source": source, "target": target, **cell} for source, target in pairs for cell in base]


STUDY = Study(
    id="calibration",
    claim="With few images a learned prior is better calibrated than baselines of the same budget.",
    data="MNIST ↔ NotMNIST (prior from 10,000 images), LeNet-5, ten images per class; 300 images to tune on; "
    "out-of-distribution images from Fashion-MNIST and CIFAR-10 in grey",
    grid={
        Preset.smoke: _cells(PAIRS[:1], [1], 1, 2000, 50, ["plain", "learned"]),
        Preset.cpu: _cells(PAIRS, [10], 5, 10000, 300, list(METHODS)),
        Preset.paper: _cells(PAIRS, [1, 5, 10, 25, 100], 10, 60000, 10000, list(METHODS)),
    },
    cell=cell,
    source=source,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "Every method tries three strengths of its prior and three temperatures (τ of the posterior, or of the softmax "
        "where there is none), by the NLL on the same 300 held-out images: nine trials each, an ensemble six. "
        "“Trainings” counts the networks that takes, of 100 steps each: an ensemble has three times the budget of the "
        "others.",
        "Laplace posteriors predict by the linearised network with the probit link. Out-of-distribution images are scored by the "
        "entropy of the prediction, against the test images.",
        "L2-SP is fine-tuning with a quadratic pull to the source's weights: the mode under the isotropic prior at the "
        "mean.",
    ),
)
