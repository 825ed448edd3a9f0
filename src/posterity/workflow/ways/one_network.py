"""One network, trained as the options say: few examples get the exact posterior around it, many a structured one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, read_blocks
from posterity.checks import ValidatedData
from posterity.curvature import GaussianNoise, Likelihood
from posterity.data.batches import Workers
from posterity.data.examples import TrainingSet
from posterity.gaussian import Gaussian
from posterity.kernel import (
    BlockFrame,
    Calibration,
    LinearisedNetwork,
    Link,
    OutputKernel,
    StrengthChoice,
    StrengthMember,
    calibrate,
    jacobian,
)
from posterity.kernel.linearised import NetworkCentred
from posterity.laplace import History, train
from posterity.laplace.run import split
from posterity.novelty import set_aside, unchanged
from posterity.predictive.exact import ExactLinear
from posterity.workflow.problem import Problem
from posterity.workflow.ways.around_prior import judged_by, left_out_outputs, with_noise
from posterity.workflow.ways.candidate import Candidate, Options

FEW_LR = 1e-2
"""Of training on few examples, halved whenever it no longer helps: steps large enough to arrive at a mode."""
HELD = 0.1
"""The share of many examples that stops training, and calibrates."""
POLISH = 100
"""Steps of L-BFGS that end the training of few examples that begins near its mode."""


def one_network(problem: Problem, options: Options) -> Candidate:
    """A trained network. Few examples get the exact posterior around it; the Gaussian over weights speaks for many."""
    few = problem.few
    usual: dict[str, Any] = {"validation": HELD} if few is None else {"validation": None, "lr": FEW_LR}
    if (
        few is None
        and options.training.keys() <= {"validation"}
        and problem.is_new_network
        and not problem.is_regression
    ):
        usual |= options.recipe.many_examples.options()
    asked = usual | dict(options.training)
    history = trained(problem, problem.prior, options, asked)
    likelihood = history.likelihood or problem.likelihood
    # The split that was trained with: what was held out stays out of the curvature.
    part, held = split(problem.data, asked["validation"], torch.Generator().manual_seed(history.seed), problem.groups)
    predictor = reference = probs = deviations = None
    if few is not None and not options.by_bound:
        predictor = around_mode(problem, few, likelihood, options)
        likelihood, outputs = predictor.likelihood, left_out_outputs(predictor, problem.leave_out)
        reference = unchanged(problem.model, None, few.whole, outputs, problem.leave_out, likelihood)
        probs, deviations = judged_by(predictor, problem.leave_out)
    elif Workers.here().size == 1:
        reference = set_aside(problem.model, part, held, likelihood, problem.batch_size)
    found = Candidate(problem.prior, likelihood, predictor, probs, history=history, part=part, held=held)
    return replace(found, reference=reference, deviations=deviations)


def polish(problem: Problem, options: Options, prior: Gaussian) -> History:
    """Training that begins near its mode: L-BFGS on all examples, or the usual way where the noise is learned on it."""
    asked: dict[str, Any] = {"validation": None, "start": "model"}
    if not isinstance(problem.likelihood, GaussianNoise):
        asked |= {"epochs": 0, "polish_steps": POLISH}
    return trained(problem, prior, options, asked | dict(options.training))


def trained(problem: Problem, prior: Gaussian, options: Options, asked: dict[str, Any]) -> History:
    """`pt.train` with the problem's own options."""
    settings: dict[str, Any] = {
        "batch_size": problem.batch_size,
        "progress": options.progress,
        "groups": problem.groups,
    }
    data = ValidatedData(problem.data)
    return train(problem.model, data, prior, problem.likelihood, generator=options.generator, **settings | asked)


def around_mode(problem: Problem, examples: TrainingSet, likelihood: Likelihood, options: Options) -> ExactLinear:
    """The posterior of the network made linear where it was trained to, at the prior's own strength.

    Another strength has another mode, and features that were trained have seen every label: so only the width and the
    softness of the predictive are chosen here (and the noise of a regression).
    """
    linearised, point, frames = _where_it_is(problem.model, problem.prior, examples, likelihood)
    if problem.learns_noise:
        choice, noise = with_noise(linearised, options)
        return ExactLinear(point, frames, choice, noise, options.link)
    posterior = linearised.posterior(None)
    left_out = posterior.left_out(problem.leave_out.groups)
    calibration, nll, size = calibrate(left_out, likelihood, examples.targets, options.link)
    choice = StrengthChoice((StrengthMember(1.0, posterior, calibration, nll),), size, "loo")
    return ExactLinear(point, frames, choice, likelihood, options.link)


def around_network(
    model: nn.Module, prior: Gaussian, examples: TrainingSet, likelihood: Likelihood, link: Link = "probit"
) -> ExactLinear:
    """The posterior around the network's own outputs, with nothing chosen."""
    linearised, point, frames = _where_it_is(model, prior, examples, likelihood)
    found = linearised.posterior(None)
    posterior = NetworkCentred(found.of, found.strength, found.latent)
    choice = StrengthChoice((StrengthMember(1.0, posterior, Calibration(), math.nan),), 1, "bayes")
    return ExactLinear(point, frames, choice, likelihood, link)


def _where_it_is(
    model: nn.Module, prior: Gaussian, examples: TrainingSet, likelihood: Likelihood
) -> tuple[LinearisedNetwork, dict[str, Tensor], dict[str, BlockFrame]]:
    """The network made linear at its present weights, these weights, and the prior's frames."""
    blocks = find_blocks(model, named(prior.mean))
    frames = {name: BlockFrame.of(prior.precision[name]) for name in blocks}
    point = read_blocks(model, blocks)
    train = jacobian(model, blocks, point, frames, examples.inputs)
    shift = {name: frames[name].turned((prior.mean[name].to(point[name]) - point[name]).double()) for name in blocks}
    linearised = LinearisedNetwork(OutputKernel(frames), train, examples.targets, likelihood, examples.outputs, shift)
    return linearised, point, frames
