"""The rungs of the ladder: each prior is trained once, and every choice of its scales is measured on the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from posterity.curvature import KFOC, Curvature, estimate
from posterity.gaussian import Gaussian
from posterity.laplace import Scales, isotropic, train, update
from posterity.pacbayes import (
    Landscape,
    catoni_best,
    certify,
    mcallester,
    one_number,
    optimise_posterior,
    tune,
)
from posterity.predictive import predict
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets import images
from posterity_studies.shared.grid_search import grid_search
from posterity_studies.shared.networks import fresh
from posterity_studies.shared.per_layer import PerLayer, per_layer
from posterity_studies.shared.priors import STRENGTHS, at_strength, start_at
from posterity_studies.shared.projection import Catoni
from posterity_studies.shared.published import DELTA
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.tempering import tempered_probabilities

PASSES = 3
"""Draws for every image in a certificate: with ten thousand images more would not change the third digit."""

WEIGHTS = (0.01, 0.1, 0.3, 0.5, 0.8, 0.9, 0.99, 1.0, 2.0)
"""The paper's α and β."""
TEMPERATURES = tuple(10.0**-i for i in range(1, 13))
"""The paper goes on to 1e-26: below 1e-12 draws and mode agree on every image."""


@dataclass(frozen=True)
class Task:
    """NotMNIST: what trains and certifies, what the grid search looks at, and what nothing sees."""

    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    draws: int

    @classmethod
    def of(cls, arguments: Arguments) -> Task:
        data = images("notmnist")
        order = torch.randperm(len(data.train[1]), generator=torch.Generator().manual_seed(arguments["seed"]))
        order = order[: arguments["examples"]]
        held, rest = order[: len(order) // 10], order[len(order) // 10 :]
        x, y = data.train
        tested = slice(arguments["tested"])
        return cls(
            (x[rest], y[rest]), (x[held], y[held]), (data.test[0][tested], data.test[1][tested]), arguments["draws"]
        )


def source(arguments: Arguments) -> Recipe | None:
    """γ is small while learning on the source: the network is all but free there."""
    return None if arguments["stage"] == "isotropic" else Recipe("mnist", arguments["source"], 1e-5, epochs=20)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """All rungs that share a prior and a training: {rung: what was measured}."""
    stages = {"isotropic": _isotropic, "learned": _learned, "projected": _projected, "ours": _ours}
    return stages[arguments["stage"]](arguments, Task.of(arguments), generator)


def _isotropic(arguments: Arguments, task: Task, generator: torch.Generator) -> Values:
    model = fresh(arguments["seed"])
    prior = isotropic(model, arguments["gamma"])
    curvature = _trained(model, task, prior, arguments, generator)
    searched = _searched(prior, model, curvature, task, arguments, generator)
    return {
        "baseline": _measured(model, prior, curvature, Scales(), task, generator),
        "grid search": _measured(model, prior, curvature, searched, task, generator),
    }


def _learned(arguments: Arguments, task: Task, generator: torch.Generator) -> Values:
    model = fresh(arguments["seed"])
    prior = _one_pair(at_strength(_source_prior(arguments), arguments.get("share", 1.0), arguments["gamma"]))
    start_at(model, prior)
    curvature = _trained(model, task, prior, arguments, generator)
    searched = _searched(prior, model, curvature, task, arguments, generator)
    landscape = Landscape.of(prior, model, curvature)
    published = per_layer(landscape, "catoni", DELTA, PerLayer(steps=arguments["adam"]))
    return {
        "learned prior": _measured(model, prior, curvature, searched, task, generator),
        "curvature scaling": _measured(model, prior, curvature, published.scales, task, generator),
        "one number": _measured(
            model, prior, curvature, one_number(landscape, "catoni", DELTA).scales, task, generator
        ),
    }


def _projected(arguments: Arguments, task: Task, generator: torch.Generator) -> Values:
    model = fresh(arguments["seed"])
    prior = _one_pair(at_strength(_source_prior(arguments), arguments.get("share", 1.0), arguments["gamma"]))
    start_at(model, prior)
    curvature = _trained(model, task, prior, arguments, generator, objective=Catoni(DELTA))
    scales = tune(model, curvature, prior, "catoni", DELTA).scales
    return {"projection": _measured(model, prior, curvature, scales, task, generator)}


def _ours(arguments: Arguments, task: Task, generator: torch.Generator) -> Values:
    """Beyond the paper: a prior from a declared grid, and the posterior trained on the bound itself."""
    model = fresh(arguments["seed"])
    exact = at_strength(_source_prior(arguments), *arguments["strength"])
    prior = _one_pair(exact)
    start_at(model, prior)
    curvature = _trained(model, task, prior, arguments, generator, objective=Catoni(DELTA))
    scales = tune(model, curvature, prior, "catoni", DELTA).scales
    first = _measured(model, prior, curvature, scales, task, generator, grid=len(STRENGTHS))
    start = Gaussian(exact.mean, {name: m * 2.0 for name, m in exact.precision.items()}, exact.card)
    posterior = optimise_posterior(
        model, start, exact, task.train, epochs=arguments["optimise"], generator=generator, progress=False
    )
    return {
        "declared grid": first,
        "optimised": _figures(model, posterior, exact, task, generator, len(STRENGTHS)),
    }


def _source_prior(arguments: Arguments) -> Gaussian:
    recipe = source(arguments)
    assert recipe is not None
    return learned_prior(recipe)


def _one_pair(prior: Gaussian) -> Gaussian:
    """The nearest pair, as the paper has it. A head's gradients sum to zero over classes, so that with a small γ its factor is
    singular but for rounding: a hundred-thousandth of the mean eigenvalue is added to each."""
    pair = prior.compress()
    return replace(pair, precision={name: matrix.jittered(1e-5) for name, matrix in pair.precision.items()})


def _trained(
    model: nn.Module,
    task: Task,
    prior: Gaussian,
    arguments: Arguments,
    generator: torch.Generator,
    **options: Any,
) -> Curvature:
    """The curvature at the mode; early stopping watches the held-out images, as the paper has it."""
    train(
        model,
        task.train,
        prior,
        validation=task.held_out,
        epochs=arguments["epochs"],
        start="model",
        generator=generator,
        progress=False,
        **options,
    )
    return estimate(model, task.train, KFOC(), generator=generator, progress=False)


def _searched(
    prior: Gaussian,
    model: nn.Module,
    curvature: Curvature,
    task: Task,
    arguments: Arguments,
    generator: torch.Generator,
) -> Scales:
    few = arguments["searched"]
    if "search draws" in arguments:
        held = task.held_out[0][:few], task.held_out[1][:few]
        return averaged_search(prior, model, curvature, held, arguments["search draws"], generator)
    return grid_search(
        prior,
        model,
        curvature,
        (task.held_out[0][:few], task.held_out[1][:few]),
        temperatures=TEMPERATURES[: arguments.get("temperatures")],
        generator=generator,
        progress=False,
    ).scales


def averaged_search(
    prior: Gaussian,
    model: nn.Module,
    curvature: Curvature,
    held: tuple[Tensor, Tensor],
    draws: int,
    generator: torch.Generator,
) -> Scales:
    """The paper's grid by the accuracy of the mean over draws, of equals the warmest: the same draws at all temperatures.

    (cα, cβ, cτ) is the same posterior for every c: with β = 1 each ratio of α and β is tried once.
    """
    best, reached = Scales(), -1.0
    for alpha in sorted({round(a / b, 9) for a in WEIGHTS for b in WEIGHTS}):
        posterior = update(model, curvature, prior, Scales(alpha=alpha), join="sum")
        noise = {name: matrix.sample(draws, generator=generator) for name, matrix in posterior.precision.items()}
        found = tempered_probabilities(model, noise, held[0], TEMPERATURES)
        for tau, probs in sorted(found.items(), reverse=True):
            right = float((probs.argmax(-1) == held[1]).double().mean())
            if (right, tau) > (reached, best.of("")[2]):
                best, reached = Scales(alpha=alpha, temperature=tau), right
    return best


def _measured(
    model: nn.Module,
    prior: Gaussian,
    curvature: Curvature,
    scales: Scales,
    task: Task,
    generator: torch.Generator,
    grid: int = 1,
) -> dict[str, float]:
    return _figures(model, update(model, curvature, prior, scales, join="sum"), prior, task, generator, grid)


def _figures(
    model: nn.Module, posterior: Gaussian, prior: Gaussian, task: Task, generator: torch.Generator, grid: int
) -> dict[str, float]:
    """The paper's two estimates (the averaged predictor's error in the bound), our certificate, and test errors."""
    found = certify(model, posterior, prior, task.train, grid=grid, passes=PASSES, generator=generator, progress=False)
    few = slice(len(task.test[1]))
    averaged = _averaged(model, posterior, (task.train[0][few], task.train[1][few]), task.draws, generator)
    catoni, _ = catoni_best(averaged, found.kl, found.n, DELTA)
    values = {
        "catoni": catoni,
        "mcallester": mcallester(averaged, found.kl, found.n, DELTA),
        "certificate": found.bound,
        "kl": found.kl,
        "gibbs": found.gibbs,
        "averaged": averaged,
        "test averaged": _averaged(model, posterior, task.test, task.draws, generator),
    }
    return {name: float(f"{value:.5g}") for name, value in values.items()}


def _averaged(
    model: nn.Module, posterior: Gaussian, data: tuple[Tensor, Tensor], draws: int, generator: torch.Generator
) -> float:
    labels = predict(model, posterior, data[0], method="sampled", samples=draws, generator=generator).labels
    return float((labels != data[1]).double().mean())
