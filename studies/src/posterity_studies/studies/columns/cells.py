"""A stream of five tasks by each way to choose: stream, network, priors and steps are those of the study `continual-small`."""

from __future__ import annotations

from statistics import mean
from typing import Any

import torch

from posterity import BPNN, Scales, Task
from posterity.gaussian import Gaussian
from posterity.lenet import lenet5
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.continual import judge
from posterity_studies.shared.networks import with_fast_pooling
from posterity_studies.shared.priors import at_strength, start_at
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.streams import split

STRENGTHS = ((0.01, 0.1), (0.1, 1.0))
"""(a, γ): the prior's precision is a · (curvature on the source) + γ · identity."""
TEMPERATURES = (1.0, 1e-2, 1e-4, 1e-6)
WAYS = ("loo", "validation", "loo, floors kept")


def source(arguments: Arguments) -> Recipe:
    return Recipe("notmnist", arguments["examples"], 1.0)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Means over the stream's tasks for each way, and each task's own figures."""
    shots, batch = arguments["shots"], min(64, 2 * arguments["shots"])
    epochs = max(1, arguments["steps"] * batch // (2 * shots))
    training = {"epochs": epochs, "stop_after": epochs, "lr": 2e-3, "batch_size": batch, "validation": None}
    learned = learned_prior(source(arguments))
    values: dict[str, dict[str, Any]] = {}
    for way in WAYS:
        learner, priors = _learner(way, learned, training, arguments["seed"])
        tasks: list[dict[str, Any]] = []
        for task in split("mnist", arguments["seed"], shots=shots, held=25, tested=100):
            given = task if way == "validation" else Task(task.name, task.train, classes=task.classes)
            learner.adopt(learner.draft(given, prior=priors, progress=False))
            found = judge(learner, task)
            tasks.append({"task": task.name, "accuracy": found.accuracy, "nll": found.nll, "ece": found.ece})
        values[way] = {m: mean(task[m] for task in tasks) for m in ("accuracy", "nll", "ece")} | {"tasks": tasks}
    return values


def _learner(way: str, learned: Gaussian, training: dict[str, Any], seed: int) -> tuple[BPNN, list[Gaussian]]:
    model, head = with_fast_pooling(lenet5()), "11"
    start_at(model, learned)
    if way == "loo, floors kept":
        priors = [learned.without(head).adjusted(share, floor) for share, floor in STRENGTHS]
    else:
        priors = [at_strength(learned, *s).compress().without(head) for s in STRENGTHS]
    by_validation: dict[str, Any] = {"scales": Scales(), "temperatures": TEMPERATURES, "samples": 10}
    options = by_validation if way == "validation" else {}
    return BPNN(model, priors[0], ["3", "7", "9"], head, training=training, seed=seed, **options), priors
