"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.continual.cells import HELD, TESTED, cell, source
from posterity_studies.studies.continual.methods import DRAWS, INCREMENTAL, NAMES, SCALED, TEMPERATURES
from posterity_studies.studies.continual.reading import FULL, verdict
from posterity_studies.studies.continual.showing import draw, tables

STEPS = 100

MNIST, FASHION = ("notmnist", "mnist"), ("mnist", "fashion_mnist")


def _small(
    pairs: Sequence[tuple[str, str]],
    shots: Sequence[int],
    seeds: Sequence[int],
    methods: Sequence[str],
    steps: int = STEPS,
) -> list[dict[str, Any]]:
    return [
        {"protocol": "small", "source": source, "target": target, **rest}
        for source, target in pairs
        for rest in grid(shots=shots, examples=[10000], steps=[steps], seed=seeds, method=methods)
    ]


def _full(seeds: Sequence[int], epochs: int) -> list[dict[str, Any]]:
    return grid(protocol=["full"], epochs=[epochs], seed=seeds, method=list(FULL))


STUDY = Study(
    id="continual-small",
    claim="Columns with a learned prior learn a stream of small tasks better than with isotropic priors, and forget nothing.",
    grid={
        Preset.smoke: _small(
            [MNIST], [2], [0], ["bpnn learned", "pnn 0.01", "ewc", "scales catoni", *INCREMENTAL], steps=10
        ),
        # Seed by seed, so that a run that is cut short has something of everything.
        Preset.cpu: [
            c
            for s in range(5)
            for c in (
                *_small([MNIST], [10, 100], [s], list(NAMES)),
                *_small([FASHION], [10], [s], list(NAMES)),
                *_full([s], 2),
            )
        ]
        + [
            c
            for s in range(5)
            for pair, shots in ((MNIST, 10), (MNIST, 100), (FASHION, 10))
            for c in _small([pair], [shots], [s], [*SCALED, *INCREMENTAL])
        ],
        Preset.paper: [*_small([MNIST, FASHION], [10, 50, 100], range(5), list(NAMES)), *_full(range(5), 20)],
    },
    paper="continual experiment, at LeNet scale",
    data="NotMNIST (10,000) → split MNIST, 10 and 100 images per class; MNIST (10,000) → split Fashion-MNIST, 10 per class; five "
    "tasks each; multi-head split MNIST, all images",
    verdict=verdict,
    cell=cell,
    source=source,
    tables=tables,
    draw=draw,
    notes=(
        f"LeNet-5, laterals at the second convolution and the first two linear layers, about {STEPS} steps a task, {2 * HELD} "
        f"validation and {2 * TESTED} test images a task, five seeds; differences are paired by "
        "seed.",
        "Every learner may try two strengths (of prior, weight decay, dropout rate; four of λ, but two for online Laplace on "
        "the full set), chosen by validation NLL: of a column by its own task's, of one network for all by that of the whole "
        f"stream. BPNN also chooses the temperature of each column, from {TEMPERATURES}, and predicts by {DRAWS} draws.",
        "FWT is the accuracy of a task when it was learned, less that of the same network on the task alone (its weight decay by "
        "validation), over tasks two to five. All learners but the prior around zero start at the weights learned on the source.",
        "α = β = 1 in the first tables: after twenty images a bound chooses β near zero, which is the prior. Algorithm 2's "
        "scales by a bound have tables of their own, beside α = β = 1 and leave-one-out, all with one prior; certificates "
        "(95 %) are given where nothing was chosen by data, with and without laterals.",
        "Class-incremental: the task of a test image is not given. Columns answer with the task of least entropy; the baseline "
        "is a Gaussian prototype a class on the source's features, in the manner of arXiv 2301.01828.",
    ),
)
