"""The learners of the paper's table, all with columns that start at the source's weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from posterity.algebra import scaled_identity
from posterity.gaussian import Gaussian
from posterity.laplace import History, Scales
from posterity.progressive import BPNN, Task
from posterity_studies.shared.columns import Origin
from posterity_studies.shared.continual import PNN

NAMES = {
    "learned": "BPNN, learned prior",
    "mean": "BPNN, isotropic at ImageNet's weights",
    "pnn 1e-05": "PNN, weight decay 1e-5",
    "zero": "BPNN, isotropic at zero",
    "pnn 0.001": "PNN, weight decay 1e-3",
    "dropout": "PNN, MC dropout",
}

STRENGTHS: dict[str, list[tuple[float, float]]] = {
    "learned": [(0.1, 100.0), (0.01, 10.0), (1.0, 1000.0)],
    "mean": [(0.0, 100.0), (0.0, 10.0), (0.0, 1000.0)],
    "zero": [(0.0, 0.1), (0.0, 0.01), (0.0, 1.0)],
}
"""(a, γ): the prior's precision is a · (curvature on ImageNet) + γ · identity. Validation chooses among the first few."""
HEAD = 30.0
"""Precision of the head. With 1 the head alone tells all training pictures apart, and no prior of the other layers matters."""

TEMPERATURES = (1.0, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
RATE = 0.01
"""Of MC dropout, in front of the head: the paper's."""
LEARNING_RATES = {"learned": 1e-4, "mean": 1e-4, "zero": 1e-5}
"""Of Adam, after the head. Under a prior steps are shorter by its deviation wherever that is below one."""
PLAIN_RATES = (2e-4, 4e-4, 1e-4)
"""Of Adam, for plain columns: validation chooses among the first few, as many as a prior has strengths."""
MEMORY = 4 << 30


@dataclass(frozen=True, eq=False)
class Method:
    """A learner, and what each of its columns may choose among: priors, or learning rates."""

    learner: BPNN | PNN
    priors: Sequence[Gaussian] = ()
    rates: Sequence[float] = ()

    def learn(self, task: Task) -> None:
        """Add the candidate column of least validation NLL."""
        learner = self.learner
        if isinstance(learner, BPNN):
            learner.adopt(learner.draft(task, prior=list(self.priors), progress=False))
            return
        drafts = []
        for rate in self.rates:
            learner.training["lr"] = rate
            drafts.append(learner.draft(task, progress=False))
        # Training has watched the validation pictures, and left each draft with its best weights.
        learner.adopt(min(drafts, key=lambda draft: _least(draft.history)))


def _least(history: History) -> float:
    return history.final.validation_nll


def method(name: str, origin: Origin, training: dict[str, Any], seed: int, *, draws: int, strengths: int) -> Method:
    """A learner by its name."""
    kind, _, decay = name.partition(" ")
    options: dict[str, Any] = {"seed": seed, "memory_limit": MEMORY}
    laterals, head = origin.laterals, origin.head
    if kind in STRENGTHS:
        priors = [prior(kind, origin.prior, *strength) for strength in STRENGTHS[kind][:strengths]]
        # To the mode, which needs no validation. The posterior of every column is kept in ImageNet's eigenvectors, whatever its
        # prior: nothing is decomposed again.
        learner = BPNN(
            origin.model, priors[0], laterals, head, scales=Scales(), temperatures=TEMPERATURES, samples=draws,
            predictive="jvp", head_precision=HEAD, frames=origin.prior,
            training={"lr": LEARNING_RATES[kind], "head_first": True, "validation": None} | training, **options,
        )  # fmt: skip
        return Method(learner, priors)
    rates = PLAIN_RATES[:strengths]
    if kind == "pnn":
        decayed = PNN(origin.model, laterals, head, weight_decay=float(decay), training=training, **options)
        return Method(decayed, rates=rates)
    if kind == "dropout":
        dropping = PNN(with_dropout(origin.model), laterals, head, dropout_draws=draws, training=training, **options)
        return Method(dropping, rates=rates)
    raise ValueError(f"there is no method {name!r}")


def prior(kind: str, learned: Gaussian, share: float, floor: float) -> Gaussian:
    """One of the paper's three priors over all layers but the head."""
    if kind == "learned":
        return learned.adjusted(share, floor)
    mean = {n: torch.zeros_like(m) if kind == "zero" else m for n, m in learned.mean.items()}
    return Gaussian(mean, {n: scaled_identity(floor, matrix.shape) for n, matrix in learned.precision.items()})


def with_dropout(model: nn.Module) -> nn.Module:
    """The same weights, with dropout in front of the head."""
    dropping = copy.deepcopy(model)
    dropping.set_submodule("avgpool", nn.Sequential(dropping.get_submodule("avgpool"), nn.Dropout(RATE)))
    return dropping
