"""One prior after all of NotMNIST's training images: accuracy over temperatures, sampled and linearised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from posterity.curvature import KFOC, estimate
from posterity.laplace import train, update
from posterity.laplace.source import split
from posterity.predictive import predict
from posterity.studies.dead_units import Noise, dead_units
from posterity.studies.declaration import Arguments, Values, grid
from posterity.studies.priors import PRIORS, prior_of, start
from posterity.studies.sources import data_set, source_prior
from posterity.studies.tempering import accuracy, tempered_probabilities


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Accuracies in per cent: of the mode, by "free γ τ" and "pinned γ τ" for draws of all weights and
    of those outside dead units, and by γ for the linearised network at τ = 1."""
    kind, seed, trained = arguments["prior"], arguments["seed"], arguments["trained"]
    learned = source_prior("mnist", arguments["examples"], 1e-5)
    data = data_set("notmnist")
    kept = torch.randperm(len(data.test[0]), generator=torch.Generator().manual_seed(1000 + seed))[
        : arguments["tested"]
    ]
    x, y = data.test[0][kept], data.test[1][kept]
    model = start(kind, learned, seed)
    prior = prior_of(kind, learned, 1.0, trained, seed)
    options: dict[str, Any] = {"validation": 0.1, "epochs": arguments["epochs"], "lr": 1e-3, "progress": False}
    history = train(model, data.train, prior, generator=torch.Generator().manual_seed(seed), **options)
    part, _ = split(data.train, 0.1, torch.Generator().manual_seed(history.seed))
    assert isinstance(part, tuple)
    curvature = estimate(model, part, KFOC(), generator=generator, progress=False)
    with torch.no_grad():
        values: dict[str, Any] = {"map": accuracy(model.eval()(x), y), "count": curvature.count}
    values["train nll"] = float(f"{curvature.nll / curvature.count:.4g}")
    dead = dead_units(model, part[0])
    values["dead"] = {name: int(which.sum()) for name, which in dead.items()}
    for gamma in arguments["gammas"]:
        posterior = update(prior_of(kind, learned, 1.0, gamma, seed), model, curvature)
        for units in ("free", "pinned"):
            noise = Noise(posterior, dead if units == "pinned" else {}).sample(arguments["draws"], generator)
            found = tempered_probabilities(model, noise, x, arguments["taus"])
            values |= {f"{units} {gamma:g} {tau:g}": accuracy(probabilities, y) for tau, probabilities in found.items()}
        linear = predict(model, posterior, x, method="linearised", generator=generator).probs
        values[f"{gamma:g} linearised"] = accuracy(linear, y)
    return values


def curves(
    seeds: int,
    gammas: Sequence[float],
    trained: float,
    taus: Sequence[float],
    examples: int,
    tested: int,
    draws: int,
    epochs: int,
) -> list[dict[str, Any]]:
    """The three priors; the mode is trained with `trained`, beside which smaller γ make no difference to it."""
    return grid(
        seed=range(seeds), prior=list(PRIORS), gammas=[list(gammas)], trained=[trained], taus=[list(taus)],
        examples=[examples], tested=[tested], draws=[draws], epochs=[epochs],
    )  # fmt: skip
