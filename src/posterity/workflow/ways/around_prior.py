"""The exact posterior of few examples around the prior's mean: nothing is trained.

The strength of the prior, and how wide and how soft predictions are, are chosen by leave-one-out on a declared grid.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from posterity.blocks import Replica, find_blocks, named
from posterity.blocks.replicas import copied
from posterity.curvature import GaussianNoise, Likelihood
from posterity.data.examples import TrainingSet
from posterity.data.leave_out import LeaveOut
from posterity.data.provenance import sign
from posterity.errors import DidNotConverge, InconsistentPosterior
from posterity.gaussian import Gaussian
from posterity.heads import HeadRecipe, classify
from posterity.heads.views import Axes
from posterity.kernel import (
    BlockFrame,
    Calibration,
    LeaveOneOut,
    LinearisedNetwork,
    OutputKernel,
    SharedKernel,
    Strength,
    StrengthChoice,
    StrengthMember,
    choose,
    choose_noise,
    jacobian,
    outputs_at,
)
from posterity.kernel.choose import unit
from posterity.kernel.gradients import Rows
from posterity.kernel.kernels import FLOORS
from posterity.kernel.stacking import temperature
from posterity.novelty import features_of, unchanged
from posterity.predictive.beside_network import HeadOnFeatures, features_at
from posterity.predictive.exact import AveragedNetworks, ExactLinear, resized
from posterity.workflow.problem import Problem
from posterity.workflow.ways.candidate import Candidate, Options, deviations_of

RATIOS = tuple(10.0 ** (k / 2) for k in range(-8, 9))
"""How much larger a new head's rows may be than those of the prior's: a finite grid, which certificates pay for."""
MOST_ROWS, COMBINED = 100, 2
"""Rows of a prior's head beyond which random combinations of them stand for all, and how many: for ResNet-50's last stage two are
within a fifth of the kernel of thirty-two, four within a seventh at twice the price."""


def around_prior(problem: Problem, options: Options) -> Candidate:
    """The exact posterior around the prior's mean. Writes that mean, and a new head's own fit, into the network."""
    assert problem.few is not None
    assert problem.given is not None
    predictor = exact_posterior(
        problem.model,
        problem.prior,
        problem.given,
        problem.new_head,
        problem.few,
        problem.likelihood,
        problem.leave_out,
        options,
    )
    strength = strength_of(predictor)
    prior = at_strength(problem, predictor, strength)
    mean = dict(prior.mean)
    if problem.new_head is not None:
        mean[problem.new_head] = _fitted_head(problem, predictor, strength).to(mean[problem.new_head])
    replace(prior, mean=mean).write_to(problem.model)
    sign(problem.model, prior.provenance.joined(problem.seen))
    by = problem.model, predictor.point, problem.few.whole
    left_out, source = left_out_outputs(predictor, problem.leave_out), features_of(problem.given.known)
    reference = unchanged(*by, left_out, problem.leave_out, problem.likelihood, source)
    carried = unchanged(*by, None, problem.leave_out, problem.likelihood, source)
    probs, deviations = judged_by(predictor, problem.leave_out)
    found = Candidate(prior, predictor.likelihood, predictor, probs)
    return replace(found, reference=reference, carried=carried, deviations=deviations)


def judged_by(predictor: ExactLinear, leave_out: LeaveOut) -> tuple[Tensor | None, Tensor | None]:
    """Scores of left-out examples: the probability of the truth, or its deviation from the mean."""
    likelihood, choice = predictor.likelihood, predictor.choice
    known = [m.weight * m.log_probs.double().exp() for m in choice.members if m.log_probs is not None]
    probs = torch.stack(known).sum(0) if known else None
    if isinstance(likelihood, GaussianNoise):
        best = choice.best
        left_out, judged = best.posterior.left_out(leave_out.groups), leave_out.judged
        targets = best.posterior.of.targets
        return probs, deviations_of(left_out.part(judged), likelihood, targets[judged], best.calibration.tau)
    if probs is None and len(leave_out.judged) and (outputs := _left_out(predictor, leave_out)) is not None:
        part, best = outputs.part(leave_out.judged), choice.best
        targets = best.posterior.of.targets[leave_out.judged]
        probs = part.log_probs(likelihood, targets, best.calibration, predictor.link).double().exp()
    return probs, None


def left_out_outputs(predictor: ExactLinear, leave_out: LeaveOut) -> Tensor | None:
    """What the best posterior says of every example without it; None of numbers, and where nothing can be left out."""
    if isinstance(predictor.likelihood, GaussianNoise) or not len(leave_out.judged):
        return None
    found = _left_out(predictor, leave_out)
    return None if found is None else found.mean


def _left_out(predictor: ExactLinear, leave_out: LeaveOut) -> LeaveOneOut | None:
    best = predictor.choice.best.posterior
    try:
        return best.left_out(leave_out.lots(best.of.classes))
    except (DidNotConverge, InconsistentPosterior):
        return None


def exact_posterior(
    model: nn.Module,
    prior: Gaussian,
    given: Gaussian,
    head: str | None,
    examples: TrainingSet,
    likelihood: Likelihood,
    leave_out: LeaveOut,
    options: Options,
) -> ExactLinear:
    """The posterior of the network made linear at the prior's mean: no training, and no label in its kernel.

    `prior` fits the network; `given` is the same as it came, whose head says which features are worth reading where the
    network's own head is new (`head`).
    """
    blocks = find_blocks(model, named(prior.mean))
    frames = {name: BlockFrame.of(prior.precision[name]) for name in blocks}
    point = dict(prior.mean)
    if head is not None:
        point[head] = _directions(given, head, prior.mean[head])
    train = jacobian(model, resized(blocks, point), point, frames, examples.inputs)
    kernel = OutputKernel(frames) if head is None else SharedKernel(frames, head)
    linearised = LinearisedNetwork(
        kernel, train, examples.targets, likelihood, examples.outputs, {} if head is None else None
    )
    link = options.link
    if isinstance(likelihood, GaussianNoise) and not likelihood.per_input:
        choice, likelihood = with_noise(linearised, options)
        return ExactLinear(point, frames, choice, likelihood, link)
    criterion = options.criterion
    assert criterion in ("loo", "elbo", "evidence")
    choice = choose(linearised, criterion, leave_out, link, options.shares, options.inference, options.head_alone)
    return ExactLinear(point, frames, choice, likelihood, link)


def with_noise(linearised: LinearisedNetwork, options: Options) -> tuple[StrengthChoice, GaussianNoise]:
    """A regression: strength and noise together, in closed form."""
    found = choose_noise(linearised.kernel, linearised.train, linearised.start(), linearised.targets, options.shares)
    likelihood = GaussianNoise(found.precision)
    posterior = replace(linearised, likelihood=likelihood).posterior(found.strength)
    members = (StrengthMember(1.0, posterior, Calibration(), found.nll),)
    return StrengthChoice(members, found.options, "loo", found.options), likelihood


def at_strength(problem: Problem, predictor: ExactLinear, strength: Strength) -> Gaussian:
    """The prior with the numbers that were chosen, for a network with weights of its own.

    A kernel that all classes share sees the layers below through the prior's head; the network sees them through its new
    one. Their sizes differ, and the numbers are scaled so that both change outputs alike.
    """
    prior, head, options = problem.prior, problem.new_head, predictor.choice.strengths
    if head is None:
        adjusted = prior.adjusted(strength.share, strength.floor)
    else:
        new, old = _fitted_head(problem, predictor, strength), predictor.point[head].double()
        ratio = new[:, :-1].square().sum(1).mean() / old[:, :-1].square().sum(1).mean().clamp_min(1e-12)
        size = min(RATIOS, key=lambda r: abs(math.log(r) - math.log(max(float(ratio), 1e-12))))
        options *= len(RATIOS)
        adjusted = prior.adjusted(strength.share * size, strength.floor * size)
        own = prior.restricted([head]).adjusted(floor=strength.head)
        adjusted = replace(adjusted, precision=dict(adjusted.precision) | dict(own.precision))
    # A certificate on this data pays for the choice.
    chosen = adjusted.provenance.chose("the strength of the prior", options=options, by=problem.seen)
    return replace(adjusted, card=replace(adjusted.card, provenance=chosen))


def _fitted_head(problem: Problem, predictor: ExactLinear, strength: Strength) -> Tensor:
    """A new head's weights on the features as the prior's mean has them."""
    assert problem.new_head is not None
    linearised = predictor.choice.best.posterior.of
    alone = linearised.posterior(replace(strength, share=0.0, floor=float("inf")))
    features = linearised.train.blocks[problem.new_head]
    assert isinstance(features, Rows)
    return alone.latent.weights.mT @ features.a.double() / strength.head


def _directions(given: Gaussian, head: str, like: Tensor) -> Tensor:
    """Directions of the features through which the layers below are seen: the rows of the prior's own head.

    Of a head with many rows, such as ImageNet's, a few random combinations stand for all: each direction costs a backward pass
    for every example, and the kernel is the same on average. A prior without a head leaves all directions equal: as many
    random ones stand for them.
    """
    rows, generator = given.mean.get(head), torch.Generator().manual_seed(0)
    if rows is not None and rows.shape[1] == like.shape[1] and bool(rows.any()):
        if len(rows) <= MOST_ROWS:
            return rows
        signs = 2.0 * torch.randint(2, (COMBINED, len(rows)), generator=generator) - 1
        return signs.to(rows) @ rows / len(rows) ** 0.5
    draw = torch.randn(max(10, like.shape[0]), like.shape[1], generator=generator)
    return draw.to(like) / like.shape[1] ** 0.5


def strength_of(predictor: ExactLinear) -> Strength:
    """The strength for a network that is used by itself, and for the Gaussian around it.

    Never weaker than a unit Gaussian: an average over posteriors bears priors that a single mode overfits under.
    """
    best = predictor.choice.for_mode or best_strength(predictor)
    return Strength(best.share, max(best.floor, 1.0), max(best.head, 1.0))


def best_strength(predictor: ExactLinear) -> Strength:
    """The best posterior's, with the largest floor of the usual grid where it leaves all but a new head as it is."""
    best = predictor.choice.best.posterior
    assert best.strength is not None
    if math.isinf(best.strength.floor):
        return replace(best.strength, floor=FLOORS[-1] * unit(best.of, best.strength.share))
    return best.strength


def prior_alone(problem: Problem, options: Options) -> Candidate:
    """The network at the prior's mean. It has seen no example: all of them choose its temperature."""
    assert problem.examples is not None
    point, likelihood, examples = problem.prior.mean, problem.likelihood, problem.examples
    network, judged = Replica(copied(problem.model).eval()), problem.leave_out.judged
    outputs = outputs_at(network.module, network.blocks(point), point, examples.whole).double()
    soft = Calibration(0.0, temperature(outputs, likelihood, examples.targets, problem.leave_out.each))
    certain = LeaveOneOut(outputs, outputs.new_zeros(*outputs.shape, outputs.shape[1])).part(judged)
    log_probs = certain.log_probs(likelihood, examples.targets[judged], soft, options.link)
    predictor = AveragedNetworks(((1.0, point),), soft, likelihood, options.link)
    return Candidate(problem.prior, likelihood, predictor, log_probs.exp())


def head_alone(problem: Problem, options: Options) -> Candidate:
    """A new head on what the last layer reads, the layers below as the prior's mean has them.

    With one label a class nothing can be left out, and the beliefs of `HeadRecipe` about strength and temperature speak.
    """
    assert problem.examples is not None
    assert problem.last_layer is not None
    layer, examples, leave_out = problem.last_layer, problem.examples, problem.leave_out
    point = {name: mean for name, mean in problem.prior.mean.items() if name != layer}
    network = Replica(copied(problem.model).eval())
    features = torch.cat([features_at(network, layer, point, batch) for batch in examples.inputs])
    # Its temperature with one label a class was settled with these weights.
    recipe = HeadRecipe(alone=None)
    fit = classify(features, examples.targets, leave_out.folds, classes=examples.outputs, recipe=recipe)
    # Of examples whose class would be empty without them it says nothing: there it is as good as elsewhere.
    known = fit.left_out.gather(1, fit.labels[fit.judged, None]).squeeze(1)
    probs = features.new_full((examples.count,), float(known.mean().exp()) if len(known) else 1.0)
    probs[fit.judged.to(probs.device)] = known.exp().to(probs)
    # Its variance is not asked for, and would hold the span of the training rows.
    empty = Axes(fit.head.axes.vectors[:, :0], fit.head.axes.values[:0])
    soft = Calibration(0.0, 1.0 if len(fit.judged) else options.recipe.stacking.unjudged)
    predictor = HeadOnFeatures(point, layer, replace(fit.head, axes=empty), soft, problem.likelihood, options.link)
    return Candidate(problem.prior, problem.likelihood, predictor, probs[leave_out.judged])
