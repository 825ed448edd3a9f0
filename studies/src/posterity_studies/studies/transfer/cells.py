"""One prior on one target: the fair protocol, the paper's, and one with all of the target's data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from posterity.curvature import KFOC, estimate
from posterity.laplace import Scales, update
from posterity.predictive import Scores, predict, score
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.learning import learn_as_published
from posterity_studies.shared.priors import build_prior, start, train_to_mode
from posterity_studies.shared.sources import Recipe, data_set, learned_prior
from posterity_studies.shared.tasks import Task

STRENGTHS: dict[str, list[tuple[float, float]]] = {
    "learned": [(0.01, 0.1), (0.01, 1.0), (0.1, 1.0), (0.1, 10.0), (1.0, 10.0), (1.0, 100.0)],
    "mean": [(0.0, g) for g in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)],
    "zero": [(0.0, g) for g in (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)],
}
"""(a, γ) to try: the prior's precision is a · (curvature on the source) + γ · identity. As many for each prior."""

TEMPERATURES = [1.0, 0.1, 0.01, 0.001]

ONE_STRENGTH = {"learned": (0.1, 10.0), "mean": (0.0, 10.0)}
"""The one strength of each prior where all of the target's data is used."""

TESTED = 1000


def source(arguments: Arguments) -> Recipe:
    """The paper's protocol has one γ for the source and the target."""
    return Recipe(arguments["source"], arguments["examples"], arguments.get("gamma", 1.0))


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """One prior on one task; `protocol` says how its strength is chosen."""
    protocols = {"fair": _fair, "paper": _published, "all data": _all_data}
    return protocols[arguments["protocol"]](arguments, generator)


def _fair(arguments: Arguments, generator: torch.Generator) -> Values:
    """One prior on one small set: the strength of least validation NLL, and how it does on test images."""
    kind, seed = arguments["prior"], arguments["seed"]
    task = Task.of(arguments["target"], arguments["shots"], seed)
    learned = learned_prior(source(arguments))
    trials = []
    for strength in STRENGTHS[kind][:: arguments["skip"]]:
        prior = build_prior(kind, learned, *strength, seed)
        prior = prior.compress() if strength[0] else prior
        model = start(kind, learned, seed)
        train_to_mode(model, task.train, prior, seed)
        trials.append((map_scores(model, task.held_out), strength, prior, model))
    best, strength, prior, model = min(trials, key=lambda trial: trial[0].nll)
    posterior = update(
        model, estimate(model, task.train, KFOC(), generator=generator, progress=False), prior, join="sum"
    )
    result: dict[str, Any] = {"strength": list(strength), "held out": float(f"{best.nll:.5g}")}
    result |= named("map", map_scores(model, task.test))
    for method, draws in (("sampled", 30), ("linearised", 100)):
        options: dict[str, Any] = {"method": method, "samples": draws, "generator": generator}
        by_temperature = {}
        for tau in TEMPERATURES:
            x, y = task.held_out
            by_temperature[tau] = score(predict(model, posterior.tempered(tau), x, **options).probs, y).nll
        tau = min(by_temperature, key=lambda t: by_temperature[t])
        x, y = task.test
        scores = score(predict(model, posterior.tempered(tau), x, **options).probs, y)
        result |= {f"{method} temperature": tau} | named(method, scores)
    return result


def _published(arguments: Arguments, generator: torch.Generator) -> Values:
    """The paper's own protocol: γ and τ fixed, the sampled predictive, nothing tuned."""
    kind, gamma, tau, seed = arguments["prior"], arguments["gamma"], arguments["tau"], arguments["seed"]
    task = Task.of(arguments["target"], arguments["shots"], seed)
    learned = learned_prior(source(arguments))
    prior = learned if kind == "learned" else build_prior(kind, learned, 0.0, gamma, seed)
    model = start(kind, learned, seed)
    train_to_mode(model, task.train, prior, seed)
    posterior = update(
        model, estimate(model, task.train, KFOC(), generator=generator, progress=False), prior, join="sum"
    )
    x, y = task.test
    sampled = score(
        predict(model, posterior.tempered(tau), x, method="sampled", samples=30, generator=generator).probs, y
    )
    linear = score(predict(model, posterior, x, method="linearised", generator=generator).probs, y)
    return named("map", map_scores(model, task.test)) | named("sampled", sampled) | named("linearised", linear)


def _all_data(arguments: Arguments, generator: torch.Generator) -> Values:
    """All of the target's training data, one strength, τ = 1: what the weights' uncertainty costs in accuracy."""
    kind, seed = arguments["prior"], arguments["seed"]
    learned = learned_prior(source(arguments))
    data = data_set(arguments["target"])
    model = start(kind, learned, seed)
    prior = build_prior(kind, learned, *ONE_STRENGTH[kind], seed)
    prior = prior.compress() if kind == "learned" else prior
    options = {"epochs": 15, "lr": 1e-3}
    posterior = learn_as_published(model, data.train, prior, Scales(), options, generator)
    x, y = data.test[0][:TESTED], data.test[1][:TESTED]
    sampled = score(predict(model, posterior, x, method="sampled", samples=30, generator=generator).probs, y)
    linear = score(predict(model, posterior, x, method="linearised", generator=generator).probs, y)
    return named("map", map_scores(model, (x, y))) | named("sampled", sampled) | named("linearised", linear)


@torch.no_grad()
def map_scores(model: nn.Module, data: tuple[Tensor, Tensor]) -> Scores:
    return score(model(data[0]).softmax(-1), data[1])


def named(method: str, scores: Scores) -> dict[str, float]:
    return {f"{method} {name}": float(f"{getattr(scores, name):.5g}") for name in ("accuracy", "nll", "ece")}
