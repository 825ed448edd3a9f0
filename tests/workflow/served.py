"""One fit of every kind of predictor, as tests of serving use them, and what another process says of the saved ones."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from outcomes import GROUPS, OUTCOMES, column, conv, learn, network, numbers, points, posterior
from torch import Tensor, nn

import posterity as pt
from posterity.workflow.recipe import LastLayers, Recipe

IN_WEIGHTS = Recipe(last_layer=LastLayers(in_function_space=0))

KINDS = (
    "learn, prior, new head",
    "learn, prior, head kept",
    "learn, prior, convolutions",
    "learn, prior, regression",
    "learn, prior, one a class",
    "learn, classes",
    "learn, classes, trained as told",
    "learn, classes, pairwise",
    "learn, yes or no",
    "adapt, new head",
    "adapt, head kept",
    "adapt, variational",
    "posterior",
    "posterior, last layer",
    "posterior, last layer, regression",
    "posterior, last layer, groups",
)
"""Every predictor over a network's weights, with every kernel, latent, likelihood and link that it can have."""
X = points(1000, 8)[0]


@dataclass(frozen=True)
class OfTask:
    """A task of a learner that is asked as a fit is."""

    learner: pt.BPNN
    task: str

    @property
    def model(self) -> nn.Module:
        return self.learner.architecture.template

    def predict(self, x: Tensor) -> pt.Prediction:
        return self.learner.predict(x, self.task, generator=torch.Generator().manual_seed(0))

    def save(self, folder: Path) -> None:
        self.learner.save(folder)


def without_examples() -> Any:
    """Directions of the weights in the place of training examples."""
    with TemporaryDirectory() as folder:
        fit("adapt, head kept").save(Path(folder) / "one.fit", examples=False)
        return pt.load(Path(folder) / "one.fit", blank("adapt, head kept"))


MORE: dict[str, Callable[[], Any]] = {
    "without examples": without_examples,
    "posterior, last layer in weights": lambda: posterior(0, blocks=["2"], recipe=IN_WEIGHTS),
    "small networks, regression": lambda: OUTCOMES["learn, regression"](0),
    "table, classes": lambda: learn(0, candidates="all"),
    "table, regression": lambda: learn(0, numbers(0), network(0, 1), likelihood=pt.GaussianNoise(), candidates="all"),
    "head, classes": lambda: pt.head(*points(0), groups=GROUPS),
    "head, numbers": lambda: pt.head(points(0)[0], numbers(0)[1][:, 0]),
    "task 0": lambda: OfTask(column(0), "task 0"),
    "task 1": lambda: OfTask(column(0), "task 1"),
    "task 1, drawn": lambda: OfTask(column(0, scales="catoni", temperatures=(1.0, 0.1)), "task 1"),
    "task 1, drawn in a line": lambda: OfTask(column(0, scales=pt.Scales(), predictive="jvp"), "task 1"),
}
"""What else predicts: models of the inputs, heads on features, and the tasks of a progressive network."""
EVERY_KIND = (*KINDS, *MORE)


@cache
def fit(kind: str) -> Any:
    """A fit of that kind, made once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MORE[kind]() if kind in MORE else OUTCOMES[kind](0)


def load(folder: Path, kind: str) -> Any:
    """A fit of that kind from its file, or a task from its learner's folder."""
    if kind.startswith("task"):
        return OfTask(pt.BPNN.load(path(folder, kind), network(0)), kind.split(",")[0])
    return pt.load(path(folder, kind), None if kind.startswith("head") else blank(kind))


def blank(kind: str) -> nn.Module:
    """A network of the same layers with other weights."""
    return conv(5) if "convolutions" in kind else network(5, 1 if "regression" in kind else 3)


def said(found: pt.Prediction) -> dict[str, Tensor]:
    """All tensors of a prediction."""
    every = {f.name: getattr(found, f.name) for f in fields(found)}
    return {name: value for name, value in every.items() if isinstance(value, Tensor)}


def path(folder: Path, kind: str) -> Path:
    return folder / f"{kind.replace(', ', '-').replace(' ', '_')}.fit"


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    torch.save({kind: said(load(folder, kind).predict(X)) for kind in EVERY_KIND}, folder / "said.pt")
