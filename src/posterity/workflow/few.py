"""Few examples: the exact posterior in function space around a trained network, and of a regression with its noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks import Block, find_blocks, named, read_blocks
from posterity.curvature import GaussianNoise, Likelihood
from posterity.errors import PosterityError, TooLarge, UnsupportedNetwork
from posterity.gaussian import Gaussian
from posterity.kernel import (
    BlockFrame,
    Calibration,
    Choice,
    FunctionPosterior,
    FunctionSpace,
    Jacobian,
    Linearised,
    Link,
    Member,
    PerOutput,
    calibrate,
    choose_noise,
    jacobian,
)
from posterity.kernel.folds import numbered
from posterity.kernel.kernels import Examples, Kept, fits, limit


@dataclass(frozen=True, eq=False)
class AroundNetwork(FunctionPosterior):
    """The same covariance around what the network itself says: training need not have arrived at the mode for that."""

    def moments(
        self, new: Jacobian, kept: Kept | None = None
    ) -> tuple[Float[Tensor, "m outputs"], Float[Tensor, "m outputs outputs"]]:
        _, covariance = super().moments(new, kept)
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
        return regression(linearised, *space, link, None)
    posterior = linearised.posterior(None)
    left_out = posterior.left_out(None if groups is None else numbered(groups))
    calibration, nll, options = calibrate(left_out, likelihood, examples.targets, link)
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


def regression(linearised, blocks, point, frames, link, shares) -> FunctionSpace:  # type: ignore[no-untyped-def]
    """Strength and noise together, in closed form."""
    start = linearised.start()
    found = choose_noise(linearised.kernel, linearised.train, start, linearised.targets, shares)
    likelihood = GaussianNoise(found.precision)
    posterior = replace(linearised, likelihood=likelihood).posterior(found.strength)
    choice = Choice((Member(1.0, posterior, Calibration(), found.nll),), found.options, "loo", found.options)
    return FunctionSpace(blocks, point, frames, choice, likelihood, link)


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
