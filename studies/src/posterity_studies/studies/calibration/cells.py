"""One method on one small task, tuned on held-out images: accuracy, NLL, ECE, and detection of out-of-distribution images."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from posterity.predictive import ood_auroc, score
from posterity.predictive.prediction import categorical_entropy
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets import grey, images, pixels
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.tasks import Task
from posterity_studies.studies.calibration.methods import METHODS


@cache
def ood_images(name: str) -> Tensor:
    """Test images of another set, as MNIST's look."""
    return grey(pixels("cifar10").test[0]) if name == "cifar grey" else images("fashion_mnist").test[0]


def source(arguments: Arguments) -> Recipe:
    return Recipe(arguments["source"], arguments["examples"], 1.0)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    seed, method = arguments["seed"], METHODS[arguments["method"]]
    task = Task.of(arguments["target"], arguments["shots"], seed, tested=arguments["tested"])
    learned = learned_prior(source(arguments))
    x, y = task.held_out
    trials = []
    for strength in method.strengths:
        predictor = method.fit(task, learned, strength, seed)
        for temperature in method.temperatures:
            trials.append((score(predictor(x, temperature), y).nll, strength, temperature, predictor))
    _, strength, temperature, predictor = min(trials, key=lambda trial: trial[0])
    probabilities = predictor(task.test[0], temperature)
    scores = score(probabilities, task.test[1])
    values: dict[str, Any] = {"strength": list(strength), "temperature": temperature}
    values |= {name: float(f"{getattr(scores, name):.5g}") for name in ("accuracy", "nll", "brier", "ece")}
    inside = categorical_entropy(probabilities)
    for name in ("fashion", "cifar grey"):
        others = ood_images(name)
        kept = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))[: arguments["tested"]]
        values[f"ood {name}"] = float(
            f"{ood_auroc(inside, categorical_entropy(predictor(others[kept], temperature))):.5g}"
        )
    return values
