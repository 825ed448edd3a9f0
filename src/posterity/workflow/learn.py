"""All steps in one: train, estimate, update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named
from posterity.curvature import KFOC, Categorical, Curvature, Data, Estimator, Likelihood, estimate
from posterity.curvature.workers import Workers
from posterity.gaussian import Gaussian
from posterity.laplace import History, Scales, fitted, isotropic, train, tune_strength, update
from posterity.laplace.frozen import frozen_fingerprint
from posterity.laplace.source import split
from posterity.pacbayes import FAMILY, Certificate, certify
from posterity.predictive import Prediction, predict


@dataclass(frozen=True)
class Fit:
    """What learning left behind: the network at its mode, where it came from, and how sure it is."""

    model: nn.Module
    prior: Gaussian
    posterior: Gaussian
    curvature: Curvature
    scales: Scales
    history: History

    def predict(self, x: Tensor | Mapping[str, Any], **options: Any) -> Prediction:
        """Calibrated probabilities for new inputs: `pt.predict` with this network and posterior."""
        return predict(self.model, self.posterior, x, self.curvature.likelihood, **options)

    def certify(self, data: Data, confidence: float = 0.95, **options: Any) -> Certificate:
        """A risk bound that holds with the stated probability: `pt.certify` with this fit's posterior and prior.

        The data may be what was learned from here, if the prior has not seen it. Of four ways (networks drawn from the posterior,
        by two rules, or from the prior, or at the prior's mean) the tightest is taken and paid for; the certificate says of which
        predictor it speaks. With `ways=` another family is declared.
        """
        options = {"ways": FAMILY} | options
        return certify(self.model, self.posterior, self.prior, data, confidence, self.curvature.likelihood, **options)


def learn(
    model: nn.Module,
    data: Data,
    prior: Gaussian | None = None,
    likelihood: Likelihood | None = None,
    *,
    estimator: Estimator | None = None,
    scales: Scales | None = None,
    head_precision: float = 1.0,
    validation: float | Data | None = 0.1,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
    training: Mapping[str, Any] | None = None,
) -> Fit:
    """Learn a task: MAP training from the prior, curvature at the mode, and the posterior that is the next task's prior.

    Without a prior the chain starts with an isotropic one of precision 1 around zero. Without scales the strength of the prior
    in the posterior is the one of greatest evidence. `training` goes to `train` as further options (lr, epochs, …).
    """
    likelihood = likelihood or Categorical()
    prior = isotropic(model) if prior is None else fitted(prior, model, head_precision)
    generator = _shared(generator)
    options: dict[str, Any] = {"validation": validation, "batch_size": batch_size, "progress": progress} | dict(
        training or {}
    )
    history = train(model, data, prior, likelihood, generator=generator, **options)
    # The split that was trained with: what was held out stays unseen.
    part, _ = split(data, options["validation"], torch.Generator().manual_seed(history.seed))
    curvature = estimate(
        model,
        part,
        estimator or KFOC(),
        likelihood,
        blocks=named(prior.mean),
        batch_size=batch_size,
        generator=generator,
        progress=progress,
    )
    prior = prior if prior.is_compressed else prior.compress()
    scales = scales or tune_strength(prior, model, curvature)
    posterior = update(prior, model, curvature, scales)
    frozen = frozen_fingerprint(model, find_blocks(model, named(prior.mean)))
    # What was held out decided when to stop: it has been seen too, and training tells so.
    seen = posterior.provenance.joined(history.provenance)
    card = replace(posterior.card, frozen=frozen, seed=history.seed, provenance=seen)
    return Fit(model, prior, replace(posterior, card=card), curvature, scales, history)


def _shared(generator: torch.Generator | None) -> torch.Generator:
    """One generator for all steps, the same for all workers."""
    device = None if generator is None else generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    return torch.Generator().manual_seed(Workers.here().first(seed))
