"""One cell: one method tuned and tested on one draw of images, or one posterior at all temperatures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

import posterity as pt
from posterity.predictive.prediction import categorical_entropy
from posterity_studies.demo.methods import Fitted, fit
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets.digits import Pair, digits, photographs

DRAWS = 20

IMAGES = 300
"""Draws of the weights, and test images, for the curves over temperature."""

VALIDATION = 5
"""Images per class that choose every method's strength."""

POOL = 20
"""Images per class that training sets are taken from; smaller ones lie inside larger ones."""


@dataclass(frozen=True)
class Split:
    """One seed's draw of the target: no image is in two parts."""

    train: Pair
    validation: Pair
    test: Pair


def split(per_class: int, seed: int) -> Split:
    """The same validation and test images for every method and every size of training set."""
    x, y = digits()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    ranked = [order[y[order] == digit] for digit in range(10)]
    validation = torch.cat([r[:VALIDATION] for r in ranked])
    train = torch.cat([r[VALIDATION : VALIDATION + per_class] for r in ranked])
    test = torch.cat([r[VALIDATION + POOL :] for r in ranked])
    # Mixed, so that the first few hundred are of all classes.
    test = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))]
    return Split(*((x[part], y[part]) for part in (train, validation, test)))


def cell(path: Path, arguments: Arguments, generator: torch.Generator) -> Values:
    """`path` is the prior's file. Randomness comes from the seed in the arguments, so that methods share their images."""
    prior = pt.load(path)
    images = split(arguments["per_class"], arguments["seed"])
    chosen, trials = _choose(prior, images, arguments)
    if arguments["experiment"] == "fits":
        return {**trials, **_scores(chosen, images)}
    return {**trials, **_temperatures(chosen, images, arguments["temperatures"], generator)}


def _choose(prior: pt.Gaussian, images: Split, arguments: Arguments) -> tuple[Fitted, dict[str, object]]:
    """The fit with the lowest NLL on the validation images."""
    x, y = images.validation
    method, strengths = arguments["method"], arguments["strengths"]
    fits = [fit(method, s, prior, images.train, arguments["seed"], arguments["steps"]) for s in strengths]
    nlls = [round(pt.score(f.probs(x), y).nll, 5) for f in fits]
    best = min(range(len(nlls)), key=nlls.__getitem__)
    return fits[best], {"strength": strengths[best], "validation": nlls}


def _scores(chosen: Fitted, images: Split) -> dict[str, object]:
    x, y = images.test
    probs = chosen.probs(x)
    diagram = pt.reliability(probs, y)
    return {
        **_measures(probs, y, chosen.probs(photographs())),
        "images": len(y),
        "reliability": [[round(v, 5) for v in row] for row in (diagram.confidence, diagram.accuracy, diagram.share)],
    }


def _temperatures(
    chosen: Fitted, images: Split, temperatures: list[float], generator: torch.Generator
) -> dict[str, object]:
    """The posterior's predictives from cold to warm, on the first test images; and the network's own answer beside them."""
    x, y = (part[:IMAGES] for part in images.test)
    posterior, as_for_the_mode = chosen.posteriors(images.train)

    def measured(gaussian: pt.Gaussian, method: Literal["sampled", "linearised"]) -> dict[str, float]:
        prediction = pt.predict(chosen.model, gaussian, x, samples=DRAWS, method=method, generator=generator)
        return _measures(prediction.probs, y)

    return {
        "map": _measures(chosen.probs(x), y),
        "sampled": [measured(posterior.tempered(t), "sampled") for t in temperatures],
        "linearised": [measured(posterior.tempered(t), "linearised") for t in temperatures],
        "sampled_as_for_the_mode": measured(as_for_the_mode, "sampled"),
        "linearised_as_for_the_mode": measured(as_for_the_mode, "linearised"),
        "images": len(y),
    }


def _measures(probs: Tensor, y: Tensor, unknown: Tensor | None = None) -> dict[str, float]:
    scores = pt.score(probs, y)
    found = {"accuracy": scores.accuracy, "nll": scores.nll, "ece": scores.ece}
    if unknown is not None:
        found["ood"] = pt.ood_auroc(categorical_entropy(probs), categorical_entropy(unknown))
    return {name: round(value, 5) for name, value in found.items()}
