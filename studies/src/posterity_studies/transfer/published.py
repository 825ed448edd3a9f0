"""The paper's own protocol: γ and τ fixed, the sampled predictive, nothing tuned."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch

from posterity.curvature import KFOC, estimate
from posterity.laplace import update
from posterity.predictive import predict, score
from posterity_studies.declaration import Arguments, Record, Table, Values, grid
from posterity_studies.priors import PRIORS, prior_of, start, to_the_mode
from posterity_studies.sources import source_prior
from posterity_studies.tasks import Task
from posterity_studies.transfer.scores import by_seed, map_scores, named, of

PAPER = {
    "learned": {1: 10.2, 10: 46.1, 100: 86.8},
    "mean": {1: 9.9, 10: 9.8, 100: 10.6},
    "zero": {1: 10.0, 10: 9.7, 100: 12.0},
}
"""Accuracy in % of the paper's Fig. 2b (γ = 1e-5, τ = 1e-5, sampled) at 1, 10 and 100 images per class."""


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    kind, gamma, tau, seed = arguments["prior"], arguments["gamma"], arguments["tau"], arguments["seed"]
    task = Task.of(arguments["target"], arguments["shots"], seed)
    learned = source_prior(arguments["source"], arguments["examples"], gamma)
    prior = learned if kind == "learned" else prior_of(kind, learned, 0.0, gamma, seed)
    model = start(kind, learned, seed)
    to_the_mode(model, task.train, prior, seed)
    posterior = update(prior, model, estimate(model, task.train, KFOC(), generator=generator, progress=False))
    x, y = task.test
    sampled = score(predict(model, posterior.tempered(tau), x, samples=30, generator=generator).probs, y)
    linear = score(predict(model, posterior, x, method="linearised", generator=generator).probs, y)
    return named("map", map_scores(model, task.test)) | named("sampled", sampled) | named("linearised", linear)


def cells(shots: Sequence[int], seeds: int, examples: int) -> list[dict[str, Any]]:
    return grid(
        protocol=["paper"], source=["mnist"], target=["notmnist"], prior=list(PRIORS), shots=shots,
        examples=[examples], gamma=[1e-5], tau=[1e-5], seed=range(seeds),
    )  # fmt: skip


def tables(records: Sequence[Record]) -> list[Table]:
    here = of(records, "paper")
    if not here:
        return []
    rows = []
    for shots in sorted({r.arguments["shots"] for r in here}):
        for kind, name in PRIORS.items():
            samples = [by_seed(here, shots, kind, f"{m} accuracy") for m in ("sampled", "linearised", "map")]
            sampled, *others = [f"{100 * statistics.mean(s.values()):.1f}" if s else "–" for s in samples]
            published = PAPER[kind].get(shots)
            rows.append([str(shots), name, sampled, "" if published is None else f"{published:.1f}", *others])
    columns = ["per class", "prior", "sampled, τ = 1e-5", "paper", "linearised, τ = 1", "MAP"]
    return [Table("The paper's protocol (γ = 1e-5, τ = 1e-5), accuracy in %", columns, rows)]
