"""The verb: a bound on the risk that holds with the stated probability, or a refusal by name."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posterity.blocks import Block, write_blocks
from posterity.blocks.modes import evaluating
from posterity.curvature import Categorical, Data, Likelihood
from posterity.curvature.hashes import data_fingerprint, example_hashes
from posterity.errors import InfiniteDivergence
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import klinv
from posterity.pacbayes.certificate import Certificate, Holdout
from posterity.pacbayes.gibbs import every_batch, gibbs_risk, zero_one
from posterity.pacbayes.refusals import checked
from posterity.version import __version__

DRAWS_SHARE = 0.2
"""How much of 1 − confidence goes into estimating the Gibbs error; the bound itself takes the rest."""


def certify(
    model: nn.Module,
    posterior: Gaussian,
    prior: Gaussian,
    data: Data,
    confidence: float = 0.95,
    likelihood: Likelihood | None = None,
    *,
    passes: int = 10,
    grid: int = 1,
    trust_prior: bool = False,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> Certificate:
    """Certify the risk of networks drawn from the posterior, by examples that the prior has not seen.

    The posterior may depend on the examples in any way. The prior may not: unless it was chosen among `grid` priors that were
    declared before. `passes` independent draws of the weights for every example estimate the Gibbs error, which is then
    taken from above. The bound is on the mean error of single draws; the average over draws is another predictor, whose error
    can be up to twice as large. The model is the network's architecture; its own weights do not matter.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not {confidence}")
    if grid < 1 or passes < 1:
        raise ValueError(f"grid and passes are at least 1, not {grid} and {passes}")
    likelihood = likelihood or Categorical()
    hashes = example_hashes(data)
    blocks, checks = checked(model, posterior, prior, hashes, grid, trust_prior)
    kl_by_block = divergence(posterior, prior)
    n, kl = len(hashes), sum(kl_by_block.values())
    delta_draws = DRAWS_SHARE * (1 - confidence)
    delta = 1 - confidence - delta_draws
    every_batch(data, batch_size, n)
    # Fresh draws: those that chose or trained a posterior know too much of it.
    found = gibbs_risk(
        model,
        posterior,
        data,
        likelihood,
        passes=passes,
        batch_size=batch_size,
        generator=generator,
        progress=progress,
    )
    upper = klinv(found.error, math.log(1 / delta_draws) / found.count)
    return Certificate(
        bound=klinv(upper, (kl + math.log(2 * grid * math.sqrt(n) / delta)) / n),
        confidence=confidence,
        delta=delta,
        delta_draws=delta_draws,
        n=n,
        replicates=found.count,
        kl=kl,
        gibbs=found.error,
        upper=upper,
        holdout=holdout(model, blocks, prior, data, likelihood, confidence, batch_size),
        grid=grid,
        drawn_per=found.drawn_per,
        kl_by_block=kl_by_block,
        prior=prior.fingerprint(),
        posterior=posterior.fingerprint(),
        data=data_fingerprint(hashes),
        checks=checks,
        versions={"posterity": __version__, "torch": str(torch.__version__)},
    )


def divergence(posterior: Gaussian, prior: Gaussian) -> dict[str, float]:
    """KL(posterior ‖ prior) by block, in nats; `InfiniteDivergence` if it is no number."""
    found = {name: float(value) for name, value in posterior.kl_by_block(prior).items()}
    if bad := [name for name, value in found.items() if not math.isfinite(value)]:
        raise InfiniteDivergence(
            f"KL(posterior ‖ prior) is {found[bad[0]]} in block {bad[0]!r}: one of the two is singular there, or its numbers "
            "are beyond reason. Look at both with `posterity prior inspect`."
        )
    # Rounding can leave a posterior that equals its prior a hair below zero.
    return {name: max(0.0, value) for name, value in found.items()}


@torch.no_grad()
def holdout(
    model: nn.Module,
    blocks: dict[str, Block],
    prior: Gaussian,
    data: Data,
    likelihood: Likelihood,
    confidence: float,
    batch_size: int,
) -> Holdout:
    """The plain test-set bound for the network at the prior's mean, which the same data gives at the same confidence."""
    like = next(model.parameters())
    mean: dict[str, Tensor] = {name: prior.mean[name].to(like) for name in blocks}
    weights = write_blocks(blocks, mean)
    wrong, count = 0.0, 0
    with evaluating(model):
        for batch in every_batch(data, batch_size):
            batch = batch.to(like.device)
            wrong += float(zero_one(likelihood, batch.outputs(model, weights), batch.targets).sum())
            count += batch.count
    return Holdout(wrong / count, klinv(wrong / count, math.log(1 / (1 - confidence)) / count))
