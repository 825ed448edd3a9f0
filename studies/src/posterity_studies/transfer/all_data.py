"""All of the target's training data, one strength, τ = 1: what the weights' uncertainty costs in accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch

from posterity.laplace import Scales
from posterity.predictive import predict, score
from posterity.workflow import learn
from posterity_studies.declaration import Arguments, Record, Table, Values, grid
from posterity_studies.intervals import interval
from posterity_studies.priors import PRIORS, prior_of, start
from posterity_studies.sources import data_set, source_prior
from posterity_studies.transfer.scores import map_scores, named, of

STRENGTH = {"learned": (0.1, 10.0), "mean": (0.0, 10.0)}
"""The one strength of each prior."""
TESTED = 1000


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    kind, seed = arguments["prior"], arguments["seed"]
    learned = source_prior(arguments["source"], arguments["examples"], 1.0)
    data = data_set(arguments["target"])
    model = start(kind, learned, seed)
    prior = prior_of(kind, learned, *STRENGTH[kind], seed)
    prior = prior.compress() if kind == "learned" else prior
    options = {"epochs": 15, "lr": 1e-3}
    fit = learn(model, data.train, prior, scales=Scales(), training=options, generator=generator, progress=False)
    x, y = data.test[0][:TESTED], data.test[1][:TESTED]
    sampled = score(predict(model, fit.posterior, x, samples=30, generator=generator).probs, y)
    linear = score(predict(model, fit.posterior, x, method="linearised", generator=generator).probs, y)
    return named("map", map_scores(model, (x, y))) | named("sampled", sampled) | named("linearised", linear)


def cells(seeds: int) -> list[dict[str, Any]]:
    return grid(
        protocol=["all data"], source=["mnist"], target=["notmnist"], examples=[10000], seed=range(seeds), prior=list(STRENGTH)
    )  # fmt: skip


def tables(records: Sequence[Record]) -> list[Table]:
    here = of(records, "all data")
    if not here:
        return []
    rows = []
    for kind in STRENGTH:
        values = [r.values for r in here if r.arguments["prior"] == kind]
        accuracy = {m: [100 * v[f"{m} accuracy"] for v in values] for m in ("map", "sampled", "linearised")}
        row = [PRIORS[kind], f"{statistics.mean(accuracy['map']):.1f}"]
        for method in ("sampled", "linearised"):
            lost, half = interval([m - a for m, a in zip(accuracy["map"], accuracy[method], strict=True)])
            row.append(f"{statistics.mean(accuracy[method]):.1f} ({lost:.1f} ± {half:.1f} lost)")
        rows.append(row)
    columns = ["prior", "MAP", "sampled, τ = 1", "linearised, τ = 1"]
    return [Table("All of NotMNIST's training images (10,656 and 1,184 held out), accuracy in %", columns, rows)]
