"""Certificates for a handful of examples: draw networks from the prior, keep the one that errs least, pay for the choice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posterity.blocks import write_blocks
from posterity.blocks.modes import evaluating
from posterity.curvature import Categorical, Data, Likelihood
from posterity.curvature.hashes import data_fingerprint, example_hashes
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import klinv
from posterity.pacbayes.certificate import Certificate
from posterity.pacbayes.certify import holdout
from posterity.pacbayes.gibbs import every_batch, zero_one
from posterity.pacbayes.refusals import checked
from posterity.version import __version__


@dataclass(frozen=True, eq=False)
class Chosen:
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
    draws: int = 100,
    grid: int = 1,
    trust_prior: bool = False,
    batch_size: int = 1024,
    generator: torch.Generator | None = None,
) -> Chosen:
    """The best of `draws` networks from the prior on the data, with risk ≤ klinv(its error, ln(M/δ)/n).

    One deterministic network, no KL and no Monte-Carlo correction: for few examples, where ln M is the cheaper price.
    """
    if draws < 1:
        raise ValueError(f"draws is at least 1, not {draws}")
    likelihood = likelihood or Categorical()
    hashes = example_hashes(data)
    blocks, checks = checked(model, prior, prior, hashes, grid, trust_prior)
    like = next(model.parameters())
    held = [batch.to(like.device) for batch in every_batch(data, batch_size, len(hashes))]
    n, delta = len(hashes), 1 - confidence
    best_error, best = math.inf, {}
    with evaluating(model):
        for _ in range(draws):
            drawn = {name: draw[0].to(like) for name, draw in prior.sample(1, generator=generator).items()}
            weights = write_blocks(blocks, drawn)
            wrong = sum(float(zero_one(likelihood, b.outputs(model, weights), b.targets).sum()) for b in held)
            if wrong / n < best_error:
                best_error, best = wrong / n, drawn
    total = draws * grid
    certificate = Certificate(
        bound=klinv(best_error, math.log(total / delta) / n),
        confidence=confidence,
        delta=delta,
        delta_draws=0.0,
        n=n,
        replicates=n,
        kl=0.0,
        gibbs=best_error,
        upper=best_error,
        holdout=holdout(model, blocks, prior, data, likelihood, confidence, batch_size),
        grid=total,
        prior=prior.fingerprint(),
        data=data_fingerprint(hashes),
        checks=checks,
        versions={"posterity": __version__, "torch": str(torch.__version__)},
        rule="best-of-draws",
    )
    return Chosen(best, certificate)
