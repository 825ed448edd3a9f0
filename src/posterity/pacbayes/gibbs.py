"""The mean error of single draws of the weights: what PAC-Bayes bounds speak of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posterity.bars import bar
from posterity.blocks import evaluating, find_blocks, named
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.data.batches import Batch, Workers, batches
from posterity.errors import BadData, NoData, NotFinite
from posterity.gaussian import Gaussian
from posterity.gaussian.spread import Spread
from posterity.pacbayes.draws import DrawnNetwork

MANY = 1024
"""Rows that go through a network at once where every example is drawn many times."""


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
        >>> pt.pacbayes.gibbs_risk(model, fit.posterior, (x, y)).error
    """
    held = every_batch(data, batch_size)
    total = sum(batch.count for batch in held)
    return replicates(
        model,
        posterior,
        [(batch, torch.full((batch.count,), 1 / total, dtype=torch.float64)) for batch in held],
        likelihood or Categorical(),
        passes=passes,
        batch_size=batch_size,
        generator=generator,
        progress=progress,
    )


Weighted = list[tuple[Batch, Tensor]]
"""Batches, and a weight for each example; all weights sum to one."""


def replicates(
    model: nn.Module,
    posterior: Gaussian,
    held: Weighted,
    likelihood: Likelihood,
    *,
    passes: int,
    batch_size: int,
    generator: torch.Generator | None,
    progress: bool,
) -> Replicates:
    """The same for batches at hand, whose examples may weigh differently."""
    wrong, per_example = 0.0, True
    for portion in drawn_outputs(
        model, posterior, held, passes=passes, batch_size=batch_size, generator=generator, progress=progress
    ):
        per_example = portion.per_example
        wrong += portion.mean(zero_one(likelihood, portion.outputs, portion.targets))
    return Replicates(min(1.0, wrong), counted(held, passes, per_example), "example" if per_example else "batch")


def counted(held: Weighted, passes: int, per_example: bool) -> int:
    """For how many even replicates a weighted mean counts: as many as the largest weight allows.

    −ln E exp(−λ w X) is concave in the weight w, so that weights below the largest only help (Hoeffding's argument).
    """
    largest = max(float(w.max() if per_example else w.sum()) for _, w in held)
    return max(1, math.floor(passes / largest + 1e-6))


@dataclass(frozen=True, eq=False)
class Portion:
    """Some examples, and the outputs of networks drawn for them."""

    batch: Batch
    repeats: int
    outputs: Tensor
    """Every example so many times in a row."""
    per_example: bool
    """Whether each time has weights of its own."""
    weights: Tensor
    """How much each of the outputs counts in a mean over all portions."""

    def mean(self, values: Tensor) -> float:
        """What these values add to a weighted mean."""
        return float(self.weights @ values.cpu())

    @property
    def targets(self) -> Tensor:
        return self.batch.targets.repeat_interleave(self.repeats, 0)


@torch.no_grad()
def drawn_outputs(
    model: nn.Module,
    gaussian: Gaussian,
    held: Weighted,
    *,
    passes: int,
    batch_size: int,
    generator: torch.Generator | None,
    progress: bool,
) -> Iterator[Portion]:
    """Outputs of networks drawn from the Gaussian: for each example on its own where the network allows it, else for a batch."""
    like = next(model.parameters())
    network = drawn_network(model, gaussian)
    bars = bar()
    bars.disable = not progress
    examples = sum(batch.count for batch, _ in held)
    with evaluating(model):
        per_example = network.look(held[0][0].to(like.device))
        with bars:
            task = bars.add_task("drawing networks", total=passes * examples)
            portions = _portions(held, passes, batch_size) if per_example else _again(held, passes)
            for batch, weights, repeats in portions:
                batch = batch.to(like.device)
                outputs = (network.outputs if per_example else network.whole)(batch, generator, repeats)
                yield Portion(batch, repeats, outputs, per_example, weights.repeat_interleave(repeats) / passes)
                bars.advance(task, repeats * batch.count)


def drawn_network(model: nn.Module, gaussian: Gaussian) -> DrawnNetwork:
    """The network with its weights distributed as the Gaussian says."""
    like = next(model.parameters())
    blocks = find_blocks(model, named(gaussian.mean))
    return DrawnNetwork(
        model,
        blocks,
        {name: Spread.of(gaussian.mean[name], gaussian.precision[name], like) for name in blocks},
    )


def every_batch(data: Data, batch_size: int) -> list[Batch]:
    """All of the data, in every process: an empirical risk is that of all examples, not of a worker's share."""
    held = list(batches(data, batch_size, Workers()))
    if not held:
        raise NoData("there is no data to estimate a risk from.")
    return held


def _portions(held: Weighted, passes: int, size: int) -> Iterator[tuple[Batch, Tensor, int]]:
    """Few examples, each with all its repeats: what does not depend on the draw is computed once for them."""
    step = max(1, size // passes, min(size, MANY // passes))
    for batch, weights in held:
        pieces = -(-batch.count // step)
        for i in range(pieces):
            yield batch.part(i, pieces), weights[i::pieces], passes


def _again(held: Weighted, passes: int) -> Iterator[tuple[Batch, Tensor, int]]:
    for _ in range(passes):
        for batch, weights in held:
            yield batch, weights, 1


def zero_one(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    """1 for each example that is classified wrongly."""
    # Tensors of another class, and likelihoods of another, may have ideas of their own of what an error is.
    with torch._C.DisableTorchFunctionSubclass():
        return _zero_one(likelihood, outputs.as_subclass(Tensor), targets.as_subclass(Tensor))


def _zero_one(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    if type(likelihood) is not Categorical:
        raise BadData(
            f"a 0-1 error is for one class an example, by Categorical() itself and not by a {type(likelihood).__name__}: for "
            "regression see `pacbayes.regression`."
        )
    outputs, targets = likelihood.check(outputs, targets)
    if targets.ndim != 1:
        raise BadData("a 0-1 error is for one class an example: for regression see `pacbayes.regression`.")
    if bad := int((~torch.isfinite(outputs)).flatten(1).any(1).sum()):
        raise NotFinite(
            f"the network's outputs are NaN or infinite for {bad:,} of {len(targets):,} examples: they have no class, and no "
            "error. Look at the inputs, at the weights, and at the precision that the network runs in."
        )
    return (outputs.argmax(-1) != targets).to(torch.float64)
