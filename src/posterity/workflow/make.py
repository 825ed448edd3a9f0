"""From a problem and a plan to a fit: candidates, the weights that left-out examples give them, and the Gaussian over weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from posterity.blocks import named
from posterity.checks import Admitted
from posterity.curvature import EKFAC, estimate
from posterity.data.leave_out import LeaveOut
from posterity.errors import NotFinite
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import with_frozen
from posterity.kernel import Calibration, stacking_weight
from posterity.laplace import History, Scales, update
from posterity.pacbayes import tune
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.predictor import Predictor, Stack
from posterity.workflow.fit import Fit
from posterity.workflow.plan import Plan
from posterity.workflow.problem import Problem
from posterity.workflow.ways.around_prior import around_prior
from posterity.workflow.ways.candidate import Candidate, Made, Options
from posterity.workflow.ways.last_layer import last_layer
from posterity.workflow.ways.network_aside import network_aside
from posterity.workflow.ways.networks import from_prior, networks_from_scratch
from posterity.workflow.ways.on_inputs import FITTED, on_inputs
from posterity.workflow.ways.one_network import one_network, polish
from posterity.workflow.ways.small_networks import small_networks
from posterity.workflow.ways.stack import table_stack
from posterity.workflow.ways.structured import calibrated, structured, usual_spread

log = logging.getLogger("posterity")
ALONE = {
    "exact around the prior": around_prior,
    "networks from scratch": networks_from_scratch,
    "small networks": small_networks,
    "one network": one_network,
    "network aside": network_aside,
}
"""Ways that need no other candidate."""


def make_fit(problem: Problem, plan: Plan, options: Options) -> Fit:
    """The only place that makes a `Fit`."""
    if plan.ways == ("last layer",):
        made = last_layer(problem, options)
    elif plan.ways == ("structured",):
        made = structured(problem, options)
    else:
        plan, best, predictor = _candidates(problem, plan, options)
        made = _with_gaussian(problem, best, predictor, options)
    examples = problem.examples if made.predictor.needs_examples else None
    return Fit(
        problem.model,
        made.prior,
        made.posterior,
        made.curvature,
        made.scales,
        made.history,
        made.predictor,
        plan,
        examples,
    )


def _candidates(problem: Problem, plan: Plan, options: Options) -> tuple[Plan, Candidate, Predictor | None]:
    """Every candidate of the plan; the one whose weights the network is left with, and the predictor of all of them."""
    first, *others = [way for way in plan.ways if way not in FITTED]
    try:
        best = ALONE[first](problem, options)
    except NotFinite as error:
        if first == "one network" or first == "exact around the prior":
            raise
        plan = plan.instead("one network", f"{first}: {error} One network is trained instead.")
        log.warning("%s", plan.reasons[-1])
        best = one_network(problem, options)
    predictor, probs = best.predictor, best.probs
    if others:
        try:
            second = from_prior(problem, options, best)
            predictor = stacked([best, second], problem.leave_out)
            probs = _of_stack(predictor, best.probs, second.probs)
        except NotFinite as error:
            left = tuple(way for way in plan.ways if way != others[0])
            plan = replace(plan.but(f"{others[0]}: {error} They are left out."), ways=left)
            log.warning("%s", plan.reasons[-1])
    if first == "exact around the prior" and options.trains and (len(plan.ways) == 1 or options.training):
        best = replace(best, history=polish(problem, options, best.prior))
    if inputs := [way for way in plan.ways if way in FITTED]:
        network = [] if predictor is None else [replace(best, predictor=predictor, probs=probs)]
        models = [on_inputs(way, problem, options, best) for way in inputs]
        predictor, best = table_stack(problem, [*network, *models], options), replace(best, scores_unknown=False)
    return plan, best, predictor


def stacked(candidates: Sequence[Candidate], leave_out: LeaveOut) -> Stack:
    """Two candidates with the weights that left-out examples give them."""
    (first, here), (second, there) = [(cast(Predictor, c.predictor), c.probs) for c in candidates]
    share = 0.5 if here is None or there is None else stacking_weight(here, there, leave_out)
    return Stack(((1 - share, first), (share, second)))


def _of_stack(stack: Stack, here: Tensor | None, there: Tensor | None) -> Tensor | None:
    """What a stack of two gives left-out targets."""
    return None if here is None or there is None else torch.lerp(here, there, stack.parts[1][0])


def _with_gaussian(problem: Problem, best: Candidate, predictor: Predictor | None, options: Options) -> Made:
    """Curvature where the network has arrived, and Bayes' rule; where nothing else predicts, the Gaussian itself does."""
    model, part = problem.model, problem.again if best.part is None else best.part
    curvature = estimate(
        model,
        Admitted(part),
        options.estimator or EKFAC(),
        best.likelihood,
        blocks=named(best.prior.mean),
        batch_size=problem.batch_size,
        generator=options.generator,
        progress=options.progress,
    )
    scales = options.scales if isinstance(options.scales, Scales) else Scales()
    if options.criterion == "catoni" or options.criterion == "mcallester":
        scales = tune(model, curvature, best.prior, options.criterion).scales
    posterior = signed(update(model, curvature, best.prior, scales), model, best.history, problem.classes)
    link, size, likelihood = options.link, problem.batch_size, best.likelihood
    if predictor is None:
        calibration = Calibration()
        if not options.by_bound:
            calibration = calibrated(model, posterior, likelihood, part, best.held, link, size)
        predictor = StructuredGaussian(posterior, calibration, likelihood, link)
    elif not best.scores_unknown:
        # Trained networks say nothing of inputs unlike all others: that is left to the posterior.
        usual = Calibration(usual=usual_spread(model, posterior, likelihood, problem.again, size))
        around = StructuredGaussian(posterior, usual, likelihood, link, in_unknown=1.0)
        predictor = Stack(((0.0, around), (1.0, predictor)))
    return Made(predictor, best.prior, posterior, curvature, scales, best.history)


def signed(posterior: Gaussian, model: nn.Module, history: History | None, classes: Sequence[str] | None) -> Gaussian:
    """The posterior with the names of its classes, what its network computes with beside the blocks, and all it has seen."""
    # What was held out decided when to stop: it has been seen too, and training says so.
    seen = posterior.provenance if history is None else posterior.provenance.joined(history.provenance)
    seed = None if history is None else history.seed
    names = () if classes is None else tuple(classes)
    card = replace(posterior.card, seed=seed, classes=names, provenance=seen)
    return with_frozen(replace(posterior, card=card), model)
