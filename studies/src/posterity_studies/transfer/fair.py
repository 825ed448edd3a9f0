"""The fair protocol: every prior tries as many strengths, chosen by the NLL on the same held-out images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from posterity.curvature import KFOC, estimate
from posterity.laplace import update
from posterity.predictive import predict, score
from posterity_studies.declaration import Arguments, Record, Table, Values, grid
from posterity_studies.intervals import paired, shown
from posterity_studies.priors import PRIORS, prior_of, start, to_the_mode
from posterity_studies.sources import source_prior
from posterity_studies.tasks import Task
from posterity_studies.transfer.scores import by_seed, map_scores, mean, named, of

STRENGTHS: dict[str, list[tuple[float, float]]] = {
    "learned": [(0.01, 0.1), (0.01, 1.0), (0.1, 1.0), (0.1, 10.0), (1.0, 10.0), (1.0, 100.0)],
    "mean": [(0.0, g) for g in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)],
    "zero": [(0.0, g) for g in (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)],
}
"""(a, γ) to try: the prior's precision is a · (curvature on the source) + γ · identity. As many for each prior."""
TEMPERATURES = [1.0, 0.1, 0.01, 0.001]


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """One prior on one small set: the strength of least validation NLL, and how it does on test images."""
    kind, seed = arguments["prior"], arguments["seed"]
    task = Task.of(arguments["target"], arguments["shots"], seed)
    learned = source_prior(arguments["source"], arguments["examples"], 1.0)
    trials = []
    for strength in STRENGTHS[kind][:: arguments["skip"]]:
        prior = prior_of(kind, learned, *strength, seed)
        prior = prior.compress() if strength[0] else prior
        model = start(kind, learned, seed)
        to_the_mode(model, task.train, prior, seed)
        trials.append((map_scores(model, task.held_out), strength, prior, model))
    best, strength, prior, model = min(trials, key=lambda trial: trial[0].nll)
    posterior = update(prior, model, estimate(model, task.train, KFOC(), generator=generator, progress=False))
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


def cells(
    pairs: Sequence[tuple[str, str]], shots: Sequence[int], seeds: int, examples: int, skip: int
) -> list[dict[str, Any]]:
    return [
        {"protocol": "fair", "source": source, "target": target, **rest}
        for source, target in pairs
        for rest in grid(shots=shots, examples=[examples], skip=[skip], seed=range(seeds), prior=list(PRIORS))
    ]


def pairs_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    return sorted({(r.arguments["source"], r.arguments["target"]) for r in of(records, "fair")})


def on(records: Sequence[Record], pair: tuple[str, str]) -> list[Record]:
    return [r for r in of(records, "fair") if (r.arguments["source"], r.arguments["target"]) == pair]


def tables(records: Sequence[Record]) -> list[Table]:
    """Paired differences to the tuned isotropic prior around the learned mean."""
    made = []
    for source, target in pairs_of(records):
        rows = []
        here = on(records, (source, target))
        for shots in sorted({r.arguments["shots"] for r in here}):
            for kind, name in PRIORS.items():
                row = [str(shots), name]
                for measure in ("map accuracy", "map nll", "sampled nll", "linearised nll", "linearised ece"):
                    ours, base = (by_seed(here, shots, k, measure) for k in (kind, "mean"))
                    difference = "" if kind == "mean" else f" ({shown(*paired(ours, base), digits=3, sign=True)})"
                    row.append(mean(ours) + difference)
                rows.append(row)
        title = f"{source} → {target}: mean (paired difference to the isotropic prior at the same mean ± 95 %)"
        columns = ["per class", "prior", "MAP acc", "MAP NLL", "sampled NLL", "linear. NLL", "linear. ECE"]
        made.append(Table(title, columns, rows))
    return made
