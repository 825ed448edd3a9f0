"""One prior after NotMNIST's training images, all of them or a hundred a class: accuracy over temperatures."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from posterity.curvature import KFOC, estimate
from posterity.laplace import train, update
from posterity.laplace.run import split
from posterity.predictive import predict
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets import per_class
from posterity_studies.shared.dead_units import dead_units
from posterity_studies.shared.drawing import draw_noise
from posterity_studies.shared.priors import build_prior, start, train_to_mode
from posterity_studies.shared.sources import Recipe, data_set, learned_prior
from posterity_studies.shared.tasks import Pair
from posterity_studies.shared.tempering import accuracy, tempered_probabilities

ALL = 0
"""For `shots`: all training images."""


def source(arguments: Arguments) -> Recipe:
    return Recipe("mnist", arguments["examples"], 1e-5)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Accuracies in per cent: of the mode, by "treatment γ τ" for draws, and by γ for the linearised network at τ = 1."""
    kind, seed, trained = arguments["prior"], arguments["seed"], arguments["trained"]
    learned = learned_prior(source(arguments))
    x, y = _test_images(seed, arguments["tested"])
    model = start(kind, learned, seed)
    prior = build_prior(kind, learned, 1.0, trained, seed)
    part = _to_the_mode(model, prior, arguments["shots"], seed, arguments["epochs"])
    curvature = estimate(model, part, KFOC(), generator=generator, progress=False)
    with torch.no_grad():
        values: dict[str, Any] = {"map": accuracy(model.eval()(x), y), "count": curvature.count}
    values["train nll"] = float(f"{curvature.nll / curvature.count:.4g}")
    dead = dead_units(model, part[0])
    values["dead"] = {name: int(which.sum()) for name, which in dead.items()}
    for gamma in arguments["gammas"]:
        posterior = update(model, curvature, build_prior(kind, learned, 1.0, gamma, seed), join="sum")
        for treatment, taus in arguments["taus"].items():
            noise = draw_noise(treatment, posterior, dead, arguments["draws"], generator)
            found = tempered_probabilities(model, noise, x, taus)
            values |= {
                f"{treatment} {gamma:g} {tau:g}": accuracy(probabilities, y) for tau, probabilities in found.items()
            }
        linear = predict(model, posterior, x, method="linearised", generator=generator).probs
        values[f"{gamma:g} linearised"] = accuracy(linear, y)
    return values


def _test_images(seed: int, tested: int) -> tuple[Tensor, Tensor]:
    x, y = data_set("notmnist").test
    kept = torch.randperm(len(x), generator=torch.Generator().manual_seed(1000 + seed))[:tested]
    return x[kept], y[kept]


def _to_the_mode(model: nn.Sequential, prior: Any, shots: int, seed: int, epochs: int) -> Pair:
    """Train the network; the images it was trained on."""
    data = data_set("notmnist").train
    if shots != ALL:
        part = per_class(data, shots, torch.Generator().manual_seed(seed))
        train_to_mode(model, part, prior, seed)
        return part
    options: dict[str, Any] = {"validation": 0.1, "epochs": epochs, "lr": 1e-3, "start": "model", "progress": False}
    history = train(model, data, prior, generator=torch.Generator().manual_seed(seed), **options)
    rest, _ = split(data, 0.1, torch.Generator().manual_seed(history.seed))
    assert isinstance(rest, tuple)
    return rest
