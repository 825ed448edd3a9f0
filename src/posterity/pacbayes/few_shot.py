"""Certificates for a handful of examples: draw networks from the prior, keep the one that errs least, pay for the choice."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from posterity.blocks import evaluating, write_blocks
from posterity.checks import admitted
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import Spending
from posterity.pacbayes.certificate import KEPT, Certificate
from posterity.pacbayes.certify import rebuilt, written
from posterity.pacbayes.examples import CertificateData
from posterity.pacbayes.gibbs import zero_one
from posterity.pacbayes.methods import BoundResult, Case, bounded, plain
from posterity.pacbayes.refusals import checked


@dataclass(frozen=True, eq=False)
class CertifiedDraw:
    """A network drawn from the prior: its blocks' matrices, and the certificate of this very network."""

    weights: dict[str, Tensor]
    certificate: Certificate


@torch.no_grad()
def sample_then_evaluate(
    model: nn.Module,
    prior: Gaussian,
    data: Data,
    confidence: float = 0.95,
    likelihood: Likelihood | None = None,
    *,
    groups: Tensor | None = None,
    draws: int = 100,
    grid: int = 1,
    vouched: str | None = None,
    batch_size: int = 1024,
    generator: torch.Generator | None = None,
) -> CertifiedDraw:
    """The best of `draws` networks from the prior on the data, bounded by Clopper and Pearson at δ over the number of draws.

    One deterministic network, no KL and no Monte-Carlo correction: for few examples, where ln M is the cheaper price.

    Args:
        model: the network's architecture; its own weights do not matter.
        prior: a Gaussian that has not seen the data.
        data: the examples that choose, and certify.
        confidence: with which the bound holds.
        likelihood: of the outputs; `Categorical()` by default.
        groups: what belongs together, as for `pt.certify`.
        draws: networks to choose from.
        grid: how many priors the choice was from, beyond what the library knows of.
        vouched: a text by which you answer for a prior of unknown past.
        batch_size: examples at a time.
        generator: of the draws; by default their seed follows from prior and examples.
    Returns:
        A `CertifiedDraw`: the network's weights, and its certificate.

    Example:
        >>> pt.pacbayes.sample_then_evaluate(model, prior, few, draws=1000).certificate.bound
    """
    likelihood = likelihood or Categorical()
    examples = CertificateData.of(admitted(model, data, likelihood).data, batch_size, groups)
    found = checked(model, prior, prior, examples, Spending(1 - confidence), grid, vouched, generator)
    spending = found.spending.paying("draws", draws)
    like = next(model.parameters())
    prior = rebuilt(prior)
    case = replace(Case.at_prior(model, found, prior, examples.n, likelihood, batch_size=batch_size), spending=spending)
    readings = examples.readings()
    held = [[batch.to(like.device) for batch in reading.batches] for reading in readings]
    kept, best = BoundResult(math.inf), {}
    with evaluating(model):
        for _ in range(draws):
            drawn = {name: draw[0].to(like) for name, draw in prior.sample(1, generator=found.generator).items()}
            weights = write_blocks(found.blocks, drawn)
            bounds = []
            for reading, parts in zip(readings, held, strict=True):
                wrong = torch.cat([zero_one(likelihood, b.outputs(model, weights), b.targets) for b in parts])
                bounds.append(plain(reading.mean(wrong), case, reading.grouped, KEPT))
            bound = max(bounds, key=lambda one: one.bound)
            if bound.bound < kept.bound:
                kept, best = bound, drawn
    beside = bounded("mean", replace(case, spending=found.spending), readings)
    certificate = written(kept, case, examples, beside, found.notes, confidence)
    return CertifiedDraw(best, certificate)
