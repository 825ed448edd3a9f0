"""Task 1: four methods to learn from a handful of images, each with one number that says how far to trust the source."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.lenet import lenet5
from posterity_studies.shared.datasets.digits import Pair
from posterity_studies.shared.networks import fresh
from posterity_studies.shared.priors import start_at

BATCH = 32


@dataclass(frozen=True)
class Method:
    """A contender: what it is called, what its strength is, and the strengths it may choose from."""

    label: str
    short: str
    strength: str
    strengths: tuple[float, ...]


METHODS = {
    "learned": Method("learned prior", "learned", "α", (1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
    "centred": Method("isotropic around the learned mean", "iso. mean", "γ", (1e-1, 1.0, 10.0, 100.0, 1000.0)),
    "tuned": Method("plain fine-tuning", "fine-tuning", "steps", (5, 10, 20, 40, 80)),
    "zero": Method("isotropic around zero", "iso. zero", "γ", (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
}
"""The same number of trials for each."""


def fit(method: str, strength: float, prior: pt.Gaussian, data: Pair, seed: int, steps: int) -> Fitted:
    """One MAP fit. All but the prior around zero start from the source network."""
    map_prior: pt.Gaussian | None
    lr = 1e-3
    match method:
        case "learned":
            # Precision times α: the source's curvature is a sum over all its images, more than a new task owes it.
            model, map_prior = _at_mean(prior), prior.tempered(1 / strength)
        case "centred":
            model = _at_mean(prior)
            map_prior = pt.isotropic(model, precision=strength, mean="model")
        case "tuned":
            model, map_prior, steps = _at_mean(prior), None, int(strength)
        case _:
            model, steps, lr = fresh(seed), 2 * steps, 2e-3
            map_prior = pt.isotropic(model, precision=strength, mean="zero")
    batches = math.ceil(len(data[1]) / BATCH)
    pt.train(
        model,
        data,
        map_prior,
        validation=None,
        epochs=math.ceil(steps / batches),
        batch_size=BATCH,
        lr=lr,
        generator=torch.Generator().manual_seed(seed),
        progress=False,
    )
    return Fitted(model, map_prior)


def _at_mean(prior: pt.Gaussian) -> nn.Module:
    """A network with the prior's mean for weights."""
    model = lenet5()
    start_at(model, prior)
    return model


@dataclass(frozen=True)
class Fitted:
    """A network at its mode, and the prior that held it."""

    model: nn.Module
    prior: pt.Gaussian | None

    @torch.no_grad()
    def probs(self, x: Tensor) -> Tensor:
        """What the network says by itself, without uncertainty in its weights."""
        return self.model.eval()(x).softmax(-1)

    def posteriors(self, data: Pair) -> tuple[pt.Gaussian, pt.Gaussian]:
        """With the prior as strong as the evidence wants it (what `pt.learn` does), and as strong as it was for the mode."""
        assert self.prior is not None
        curvature = pt.estimate(self.model, data, pt.KFOC(), generator=torch.Generator().manual_seed(0), progress=False)
        by_evidence = pt.tune_strength(self.prior, self.model, curvature)
        return pt.update(self.prior, self.model, curvature, by_evidence), pt.update(self.prior, self.model, curvature)
