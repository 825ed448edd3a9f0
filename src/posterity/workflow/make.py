"""From a problem and a plan to a fit: candidates, the weights that left-out examples give them, and the Gaussian over weights."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import nn

from posterity.blocks import named
from posterity.checks import ValidatedData
from posterity.curvature import EKFAC, estimate
from posterity.data.provenance import Provenance
from posterity.errors import NotFinite
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import with_frozen
from posterity.kernel import Calibration
from posterity.laplace import History, Scales, update
from posterity.novelty import to_known
from posterity.pacbayes import tune
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.predictor import Predictor, Stack
from posterity.workflow.fit import Fit
from posterity.workflow.plan import Plan
from posterity.workflow.problem import Problem
from posterity.workflow.ways.around_prior import around_prior, head_alone, prior_alone
from posterity.workflow.ways.candidate import Candidate, FitParts, Options, probs_of, sets_scores, stack
from posterity.workflow.ways.last_layer import last_layer
from posterity.workflow.ways.network_aside import network_aside
from posterity.workflow.ways.networks import from_prior, networks_from_scratch
from posterity.workflow.ways.on_inputs import FITTED, on_inputs
from posterity.workflow.ways.one_network import one_network, polish
from posterity.workflow.ways.small_networks import small_networks
from posterity.workflow.ways.stack import table_stack
from posterity.workflow.ways.structured import predictive, structured

log = logging.getLogger("posterity")
ALONE = {
    "exact around the prior": around_prior,
    "networks from scratch": networks_from_scratch,
    "small networks": small_networks,
    "one network": one_network,
    "network aside": network_aside,
}
"""Ways that come first, and leave their weights in the network."""
BESIDE: dict[str, Callable[[Problem, Options, Candidate], Candidate]] = {
    "networks from the prior": from_prior,
    "head alone": lambda problem, options, _: head_alone(problem, options),
    "prior alone": lambda problem, options, _: prior_alone(problem, options),
}
"""Ways beside a first one."""


def make_fit(problem: Problem, plan: Plan, options: Options) -> Fit:
    """The only place that makes a `Fit`."""
    if plan.ways == ("last layer",):
        made = last_layer(problem, options)
    elif plan.ways[0] in ("structured", "structured, last layer"):
        if plan.ways == ("structured, last layer",):
            assert problem.last_layer is not None
            problem = replace(problem, prior=problem.prior.restricted([problem.last_layer]))
        made = structured(problem, options)
    else:
        plan, best, predictor = _candidates(problem, plan, options)
        made = _with_gaussian(problem, best, predictor, options)
    examples = problem.examples if made.predictor.needs_examples else None
    posterior = made.posterior
    if options.validation is not None:
        # What calibrated the predictions has been seen: no certificate of them may take it for new.
        seen = posterior.provenance.joined(Provenance.of(options.validation))
        posterior = posterior.with_provenance(seen)
    if isinstance(made.predictor, Stack) and (said := made.predictor.said):
        plan = plan.but(f"weights: {said}")
    posterior = replace(posterior, known=to_known(made.carried or made.reference))
    return Fit(
        problem.model,
        made.prior,
        posterior,
        made.curvature,
        made.scales,
        made.history,
        made.predictor,
        plan,
        examples,
        made.reference,
        made.left_out,
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
    found = [best]
    for way in others if plan.ways[0] == first else ():
        try:
            found.append(BESIDE[way](problem, options, best))
        except NotFinite as error:
            plan = replace(plan.but(f"{way}: {error} They are left out."), ways=tuple(w for w in plan.ways if w != way))
            log.warning("%s", plan.reasons[-1])
    predictor = best.predictor
    if inputs := [way for way in plan.ways if way in FITTED]:
        found += [on_inputs(way, problem, options, best) for way in inputs]
        predictor, best = table_stack(problem, found, options)
    elif len(found) > 1:
        predictor = stack(plan.ways, found, problem.leave_out, options.recipe.stacking)
        # The network has the weights of those that were trained last.
        trained = next((one.reference for one in found[1:] if one.reference is not None), best.carried)
        best = replace(best, carried=trained, probs=probs_of(predictor, found))
    trains = "networks from the prior" not in plan.ways or options.training
    if first == "exact around the prior" and options.trains and trains:
        best = replace(best, history=polish(problem, options, best.prior))
    return plan, best, predictor


def _with_gaussian(problem: Problem, best: Candidate, predictor: Predictor | None, options: Options) -> FitParts:
    """Curvature where the network has arrived, and Bayes' rule; where nothing else predicts, the Gaussian itself does."""
    model, part = problem.model, problem.again if best.part is None else best.part
    curvature = estimate(
        model,
        ValidatedData(part),
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
    scores = None
    if predictor is None and options.by_bound:
        predictor = StructuredGaussian(posterior, Calibration(), likelihood, link)
    elif predictor is None:
        predictor, scores = predictive(model, posterior, likelihood, part, best.held, options, size)
    elif problem.examples is not None:
        scores = sets_scores(best.probs, best.deviations, likelihood, problem.leave_out)
    return FitParts(
        predictor, best.prior, posterior, curvature, scales, best.history, best.reference, best.carried, scores
    )


def signed(posterior: Gaussian, model: nn.Module, history: History | None, classes: Sequence[str] | None) -> Gaussian:
    """The posterior with the names of its classes, what its network computes with beside the blocks, and all it has seen."""
    # What was held out decided when to stop: it has been seen too, and training says so.
    seen = posterior.provenance if history is None else posterior.provenance.joined(history.provenance)
    seed = None if history is None else history.seed
    names = () if classes is None else tuple(classes)
    card = replace(posterior.card, seed=seed, classes=names, provenance=seen)
    return with_frozen(replace(posterior, card=card), model)
