"""The mean error of single draws of the weights: what PAC-Bayes bounds speak of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posterity.bars import bar
from posterity.blocks import find_blocks, named
from posterity.blocks.modes import evaluating
from posterity.curvature import Categorical, Data, Likelihood
from posterity.curvature.batches import Batch, batches
from posterity.curvature.workers import Workers
from posterity.errors import BadData, NoData
from posterity.gaussian import Gaussian
from posterity.gaussian.spread import Spread
from posterity.pacbayes.draws import DrawnNetwork


@dataclass(frozen=True)
class Replicates:
    """Independent replicates of an error in [0, 1]: their mean and number, and how they were drawn."""

    error: float
    count: int
    drawn_per: str
    """"example": each with weights of its own. "batch": one draw of the weights for a batch of examples."""


def gibbs_risk(
    model: nn.Module,
    posterior: Gaussian,
    data: Data,
    likelihood: Likelihood | None = None,
    *,
    passes: int = 10,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> Replicates:
    """The 0-1 error of a network drawn from the posterior, on the data: `passes` independent draws for every example.

    The replicates are independent, and their mean estimates the mean error over all draws and all of the data without bias.
    They are not alike, since each example appears equally often; Hoeffding's argument (1963) makes `klinv` hold for the mean
    of such, and their spread is smaller than that of examples drawn at random. Networks with blocks that cannot be
    drawn per example are drawn as a whole for each batch: then a batch is one replicate, and there are fewer of them.

    Args:
        model: the network's architecture; its own weights do not matter.
        posterior: the Gaussian that weights are drawn from.
        data: labelled examples.
        likelihood: of the outputs; `Categorical()` by default.
        passes: draws for every example.
        batch_size: examples at a time.
        generator: of the draws.
        progress: whether to show a bar.
    Returns:
        The mean error and the number of independent replicates.

    Example:
        >>> pt.gibbs_risk(model, fit.posterior, (x, y)).error
    """
    likelihood = likelihood or Categorical()
    blocks = find_blocks(model, named(posterior.mean))
    like = next(model.parameters())
    spreads = {name: Spread.of(posterior.mean[name], posterior.precision[name], like) for name in blocks}
    drawn = DrawnNetwork(model, blocks, spreads)
    held = every_batch(data, batch_size)
    bars = bar()
    bars.disable = not progress
    wrong, examples = 0.0, sum(batch.count for batch in held)
    with evaluating(model):
        per_example = drawn.look(held[0].to(like.device))
        with torch.no_grad(), bars:
            task = bars.add_task("drawing networks", total=passes * examples)
            for batch, repeats in _portions(held, passes, batch_size) if per_example else _again(held, passes):
                batch = batch.to(like.device)
                draw = drawn.outputs if per_example else drawn.whole
                outputs = draw(batch, generator, repeats)
                targets = batch.targets.repeat_interleave(repeats, 0)
                wrong += float(zero_one(likelihood, outputs, targets).sum())
                bars.advance(task, len(targets))
    total = passes * examples
    # A mean of batches of unlike size counts for as many even ones as the largest weight allows.
    count = total if per_example else total // max(batch.count for batch in held)
    return Replicates(wrong / total, count, "example" if per_example else "batch")


def every_batch(data: Data, batch_size: int, examples: int | None = None) -> list[Batch]:
    """All of the data, in every process: an empirical risk is that of all examples, not of a worker's share."""
    held = list(batches(data, batch_size, Workers()))
    found = sum(batch.count for batch in held)
    if not found:
        raise NoData("there is no data to estimate a risk from.")
    if examples is not None and found != examples:
        raise BadData(
            f"this process sees {found:,} of {examples:,} examples: give the data itself, not a loader that deals it out, or "
            "data that is the same each time it is read."
        )
    return held


def _portions(held: list[Batch], passes: int, size: int) -> Iterator[tuple[Batch, int]]:
    """Few examples, each with all its repeats: what does not depend on the draw is computed once for them."""
    step = max(1, size // passes)
    for batch in held:
        pieces = -(-batch.count // step)
        for i in range(pieces):
            yield batch.part(i, pieces), passes


def _again(held: list[Batch], passes: int) -> Iterator[tuple[Batch, int]]:
    for _ in range(passes):
        for batch in held:
            yield batch, 1


def zero_one(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    """1 for each example that is classified wrongly."""
    outputs, targets = likelihood.check(outputs, targets)
    if not isinstance(likelihood, Categorical) or targets.ndim != 1:
        raise BadData("a 0-1 error is for one class an example: for regression see `pacbayes.regression`.")
    return (outputs.argmax(-1) != targets).to(torch.float64)
