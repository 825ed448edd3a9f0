"""Few examples: the exact posterior in function space, around the prior's mean or around a trained network."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks import Block, evaluating, find_blocks, named, read_blocks
from posterity.curvature import Data, GaussianNoise, Likelihood
from posterity.curvature.batches import Batch, batches
from posterity.errors import PosterityError, TooLarge, UnsupportedNetwork
from posterity.gaussian import Gaussian
from posterity.kernel import (
    BlockFrame,
    Calibration,
    Choice,
    FunctionPosterior,
    FunctionSpace,
    Inference,
    Jacobian,
    Linearised,
    Link,
    Member,
    PerOutput,
    Shared,
    Strength,
    calibrate,
    choose,
    choose_noise,
    jacobian,
)
from posterity.kernel.choose import Criterion

log = logging.getLogger("posterity")

SIDE = 3000
"""The largest n·C whose kernel over all outputs is factorised (72 MB, a second a Cholesky factor)."""
SHARED = 1500
"""The largest n for a kernel that all outputs share."""
MOST_ROWS, COMBINED = 100, 4
"""Rows of a prior's head beyond which a few random combinations of them stand for all, and how many."""


@dataclass(frozen=True, eq=False)
class Examples:
    """All training examples at once, as inference in function space takes them."""

    inputs: list[Batch]
    targets: Tensor
    outputs: int

    @property
    def count(self) -> int:
        return len(self.targets)


def fits(count: int, outputs: int, new_head: bool) -> bool:
    """Whether the exact posterior of so many examples is within reach."""
    return count <= SHARED if new_head else count * outputs <= SIDE


def limit(new_head: bool) -> str:
    """The limit in words."""
    return f"{SHARED:,} examples" if new_head else f"{SIDE:,} examples times outputs"


@torch.no_grad()
def gather(model: nn.Module, data: Data, likelihood: Likelihood, batch_size: int, most: int) -> Examples | None:
    """The data as a list of batches, or None as soon as there are more than `most` examples or outputs have positions."""
    kept: list[Batch] = []
    count = 0
    for batch in batches(data, batch_size):
        count += batch.count
        if count > most:
            return None
        kept.append(batch.to(next(model.parameters()).device))
    if not kept:
        return None
    with evaluating(model):
        outputs, _ = likelihood.check(kept[0].outputs(model), kept[0].targets)
    if outputs.ndim != 2:
        return None
    targets = torch.cat([batch.targets for batch in kept])
    return Examples(kept, targets, outputs.shape[1])


def around_prior(
    model: nn.Module,
    prior: Gaussian,
    handed_down: Gaussian,
    head: str | None,
    examples: Examples,
    likelihood: Likelihood,
    criterion: Criterion = "loo",
    groups: Tensor | None = None,
    link: Link = "probit",
    shares: Sequence[float] | None = None,
    inference: Inference | None = None,
) -> FunctionSpace:
    """The posterior of the network made linear at the *prior's mean*: no training, and no label in its kernel.

    `prior` fits the network; `handed_down` is the same as it came, whose head says which features are worth reading where
    the network's own head is new (`head`).
    """
    blocks = find_blocks(model, named(prior.mean))
    frames = {name: BlockFrame.of(prior.precision[name]) for name in blocks}
    point = dict(prior.mean)
    if head is not None:
        point[head] = _directions(handed_down, head, prior.mean[head])
    blocks = _resized(blocks, point)
    train = jacobian(model, blocks, point, frames, examples.inputs)
    kernel = PerOutput(frames) if head is None else Shared(frames, head)
    linearised = Linearised(kernel, train, examples.targets, likelihood, examples.outputs, {} if head is None else None)
    if isinstance(likelihood, GaussianNoise):
        return _regression(linearised, blocks, point, frames, link, shares)
    choice = choose(linearised, criterion, groups, link, shares, inference)
    return FunctionSpace(blocks, point, frames, choice, likelihood, link)


@dataclass(frozen=True, eq=False)
class AroundNetwork(FunctionPosterior):
    """The same covariance around what the network itself says: training need not have arrived at the mode for that."""

    def moments(self, new: Jacobian) -> tuple[Float[Tensor, "m outputs"], Float[Tensor, "m outputs outputs"]]:
        _, covariance = super().moments(new)
        return new.outputs.double(), covariance


def around_mode(
    model: nn.Module,
    prior: Gaussian,
    examples: Examples,
    likelihood: Likelihood,
    groups: Tensor | None = None,
    link: Link = "probit",
    learn_noise: bool = False,
) -> FunctionSpace:
    """The posterior of the network made linear where it was trained to, at the prior's own strength.

    Another strength has another mode, and features that were trained have seen every label: so only the width and the
    softness of the predictive are chosen here (and the noise of a regression).
    """
    linearised, space = _where_it_is(model, prior, examples, likelihood)
    if isinstance(likelihood, GaussianNoise) and learn_noise:
        return _regression(linearised, *space, link, None)
    posterior = linearised.posterior(None)
    calibration, nll, options = calibrate(posterior.left_out(groups), likelihood, examples.targets, link)
    choice = Choice((Member(1.0, posterior, calibration, nll),), options, "loo")
    return FunctionSpace(*space, choice, likelihood, link)


def around_network(
    model: nn.Module, prior: Gaussian, examples: Examples, likelihood: Likelihood, link: Link = "probit"
) -> FunctionSpace:
    """The same around the network's own outputs, with nothing chosen."""
    linearised, space = _where_it_is(model, prior, examples, likelihood)
    found = linearised.posterior(None)
    posterior = AroundNetwork(found.of, found.strength, found.latent)
    return FunctionSpace(
        *space, Choice((Member(1.0, posterior, Calibration(), math.nan),), 1, "bayes"), likelihood, link
    )


def _where_it_is(
    model: nn.Module, prior: Gaussian, examples: Examples, likelihood: Likelihood
) -> tuple[Linearised, tuple[dict[str, Block], dict[str, Tensor], dict[str, BlockFrame]]]:
    """The network made linear at its present weights, with its blocks, these weights, and the prior's frames."""
    blocks = find_blocks(model, named(prior.mean))
    frames = {name: BlockFrame.of(prior.precision[name]) for name in blocks}
    point = read_blocks(model, blocks)
    train = jacobian(model, blocks, point, frames, examples.inputs)
    shift = {name: frames[name].turned((prior.mean[name].to(point[name]) - point[name]).double()) for name in blocks}
    linearised = Linearised(PerOutput(frames), train, examples.targets, likelihood, examples.outputs, shift)
    return linearised, (blocks, point, frames)


def _regression(linearised, blocks, point, frames, link, shares) -> FunctionSpace:  # type: ignore[no-untyped-def]
    """Strength and noise together, in closed form."""
    start = linearised.start()
    found = choose_noise(linearised.kernel, linearised.train, start, linearised.targets, shares)
    likelihood = GaussianNoise(found.precision)
    posterior = replace(linearised, likelihood=likelihood).posterior(found.strength)
    choice = Choice((Member(1.0, posterior, Calibration(), found.nll),), found.options, "loo", found.options)
    return FunctionSpace(blocks, point, frames, choice, likelihood, link)


def _directions(handed_down: Gaussian, head: str, like: Tensor) -> Tensor:
    """Directions of the features through which the layers below are seen: the rows of the prior's own head.

    Of a head with many rows, such as ImageNet's, a few random combinations stand for all: each direction costs a backward pass
    for every example, and the kernel is the same on average. A prior without a head leaves all directions equal: as many
    random ones stand for them.
    """
    rows, generator = handed_down.mean.get(head), torch.Generator().manual_seed(0)
    if rows is not None and rows.shape[1] == like.shape[1] and bool(rows.any()):
        if len(rows) <= MOST_ROWS:
            return rows
        signs = 2.0 * torch.randint(2, (COMBINED, len(rows)), generator=generator) - 1
        return signs.to(rows) @ rows / len(rows) ** 0.5
    draw = torch.randn(max(10, like.shape[0]), like.shape[1], generator=generator)
    return draw.to(like) / like.shape[1] ** 0.5


def _resized(blocks: dict[str, Block], point: dict[str, Tensor]) -> dict[str, Block]:
    """Blocks with as many outputs as the point has: a head may read in more directions than the task has classes."""
    resized = {}
    for name, block in blocks.items():
        out = point[name].shape[0]
        layer = block.layer if out == block.layer.out else replace(block.layer, out=out)
        resized[name] = replace(block, layer=layer)
    return resized


def strength_of(space: FunctionSpace) -> Strength:
    """The strength for a network that is used by itself, and for the Gaussian around it.

    Never weaker than a unit Gaussian: an average over posteriors bears priors that a single mode overfits under.
    """
    best = space.choice.for_mode or space.choice.best.posterior.strength
    assert best is not None
    return Strength(best.share, max(best.floor, 1.0), max(best.head, 1.0))


def too_large(examples: int, outputs: int, new_head: bool) -> PosterityError:
    """Why there is no exact posterior: too many examples, or outputs that are no single row for each example."""
    if fits(examples, outputs, new_head):
        return UnsupportedNetwork(
            "`pt.adapt` needs one row of outputs for each example, and all examples in one process. A language model has an "
            "output for each token: use `pt.learn(model, data, prior=prior)`, which trains and keeps a structured posterior."
        )
    return TooLarge(
        f"{examples:,} examples with {outputs} outputs are beyond the exact posterior in function space (limit "
        f"{limit(new_head)}): use `pt.learn`, which keeps a structured posterior instead."
    )
