"""What is claimed, and which cells test it."""

from __future__ import annotations

from typing import Any

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.candidates.cells import cell
from posterity_studies.studies.candidates.reading import verdict
from posterity_studies.studies.candidates.showing import draw, tables

SEEDS = range(3)


def _scratch(examples: int, steps: int, seeds: range, **other: Any) -> list[dict[str, Any]]:
    named = {"set": "fashion_mnist", "network": "convolutions", "few": True} | other
    return grid(kind=["scratch"], examples=[examples], steps=[steps], seed=seeds, **{k: [v] for k, v in named.items()})


def _post_hoc(**named: Any) -> list[dict[str, Any]]:
    return grid(kind=["post hoc"], seed=named.pop("seeds", SEEDS), **{k: [v] for k, v in named.items()})


def _after(sets: tuple[str, ...], shots: tuple[int, ...], seeds: range) -> list[dict[str, Any]]:
    """The cells of one source one after the other: it is learned once."""
    cells = grid(kind=["after"], seed=seeds, set=sets, shots=shots)
    return [{key: c[key] for key in ("kind", "set", "shots", "seed")} for c in cells]


STUDY = Study(
    id="candidates",
    claim="The default is behind no plain method that is tuned with the same labels, and near its best candidate in hindsight.",
    data="after a source: halves of the classes of Fashion-MNIST, vowels and leaves; a trained network: Fashion-MNIST and "
    "CIFAR-10; from scratch: the same",
    grid={
        Preset.smoke: [
            *_after(("made-up",), (1, 3), range(1)),
            *_post_hoc(set="fashion_mnist", network="convolutions", examples=60, held=40, steps=20, seeds=range(1)),
            *_scratch(40, 10, range(1)),
        ],
        Preset.cpu: [
            *_after(("vowels", "leaves", "fashion_mnist"), (1, 2, 5, 10), range(5)),
            *_post_hoc(set="fashion_mnist", network="convolutions", examples=2000, held=500, steps=500),
            *_post_hoc(set="cifar10", network="normed", examples=2000, held=500, steps=300),
            *_post_hoc(set="cifar10", network="residual", examples=2000, held=500, steps=60),
            *_scratch(100, 400, SEEDS),
            *_scratch(2500, 585, SEEDS, set="cifar10", network="normed", few=False),
            *_scratch(12000, 2535, SEEDS, few=False),
            *_scratch(1000, 400, SEEDS),
        ],
        Preset.paper: [
            *_after(("vowels", "leaves", "fashion_mnist"), (1, 2, 5, 10), range(20)),
            *_scratch(100, 400, range(10)),
            *_scratch(1000, 400, range(10)),
        ],
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "After a source: a network learns one half of the classes and hands its posterior down; the other half has 1, 2, 5 or "
        "10 labels a class. `learn` and `adapt` are called with their defaults.",
        "Rivals have the same labels and folds: logistic regression on the source's features with six strengths, as they are "
        "and at unit length; cosines to class means; a discriminant with Ledoit and Wolf's shrinkage; fine-tuning with 30, 100 "
        "or 300 steps. Each has a temperature by folds, between .2 and 5. With one label a class: strength 1, temperature 1 "
        "(cosines: .1), 100 steps.",
        "A trained network: `posterior` with 500 validation images beside temperature scaling with the same (Guo et al. 2017).",
        "From scratch: plain one-cycle training with a temperature from a part that was held out, with the number of steps that "
        "the default takes; five bagged networks with dropout and one temperature by what each left out; an ensemble of five; "
        "logistic regression on pixels.",
        "The best rival of a setting is the one of least mean NLL by test labels, in hindsight. The weights that stand in for "
        "left-out labels, and the softness of averages, were settled on MNIST and NotMNIST, which are not reported here; one "
        "draw of Fashion-MNIST with 100 images was looked at too.",
        "Five seeds after a source, three elsewhere.",
    ),
)
