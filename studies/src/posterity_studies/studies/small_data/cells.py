"""One prior after a few images of NotMNIST: the sampled predictive over a grid of γ and τ, and what the mode does alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from posterity.curvature import KFOC, estimate
from posterity.laplace import update
from posterity.predictive import predict
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.dead_units import dead_units
from posterity_studies.shared.drawing import draw_noise
from posterity_studies.shared.priors import build_prior, start, train_to_mode
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.tasks import Task
from posterity_studies.shared.tempering import accuracy, tempered_probabilities

Taus = Mapping[str, Sequence[float]]
"""Temperatures for each treatment of the posterior (`TREATMENTS`)."""

GAMMA = 1e-5
"""The paper's in Fig. 2b; the mode is trained with it, and the other γ of the grid enter the posterior: beside a summed
loss none of them moves the mode."""


def source(arguments: Arguments) -> Recipe:
    return Recipe("mnist", arguments["examples"], GAMMA)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Accuracies in per cent, by "treatment γ τ".

    `weight` scales the source's curvature, `pull` the prior while training.
    """
    kind, seed = arguments["prior"], arguments["seed"]
    learned = learned_prior(source(arguments))
    task = Task.of("notmnist", arguments["shots"], seed, tested=arguments["tested"])
    x, y = task.test
    model = start(kind, learned, seed)
    prior = build_prior(kind, learned, arguments["weight"], GAMMA, seed)
    train_to_mode(model, task.train, prior.tempered(1 / arguments["pull"]), seed)
    curvature = estimate(model, task.train, KFOC(), generator=generator, progress=False)
    dead = dead_units(model, task.train[0])
    values: dict[str, Any] = {
        "map": accuracy(_mode(model, x), y),
        "train nll": float(f"{curvature.nll / curvature.count:.4g}"),
        "dead": {name: int(which.sum()) for name, which in dead.items()},
    }
    for gamma in arguments["gammas"]:
        posterior = update(model, curvature, build_prior(kind, learned, arguments["weight"], gamma, seed), join="sum")
        for treatment, taus in arguments["taus"].items():
            noise = draw_noise(treatment, posterior, dead, arguments["draws"], generator)
            found = tempered_probabilities(model, noise, x, taus)
            values |= {
                f"{treatment} {gamma:g} {tau:g}": accuracy(probabilities, y) for tau, probabilities in found.items()
            }
        if gamma == GAMMA:
            linear = predict(model, posterior, x, method="linearised", generator=generator).probs
            values["linearised"] = accuracy(linear, y)
    return values


@torch.no_grad()
def _mode(model: torch.nn.Module, x: Tensor) -> Tensor:
    outputs: Tensor = model.eval()(x)
    return outputs


VARIANTS: dict[str, tuple[float, float]] = {
    "the prior 256 times too strong in training": (1.0, 256.0),
    "source curvature × 100": (100.0, 1.0),
    "source curvature × 0.01": (0.01, 1.0),
    "source curvature of the mean loss (÷ 60,000)": (1 / 60000, 1.0),
}
"""(weight, pull): other units that the published code may have had."""
