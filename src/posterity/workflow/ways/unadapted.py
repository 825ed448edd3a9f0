"""Two candidates that cost one forward pass: the prior's mean as it is, and a head alone on its features.

Few labels may say less than the source already knows, or no more than a linear model of its features can use. Where the exact
posterior and trained networks do better, left-out examples say so.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from posterity.blocks import Replica
from posterity.blocks.replicas import copied
from posterity.heads import classify
from posterity.heads.views import Axes
from posterity.kernel import Calibration, LeaveOneOut, outputs_at
from posterity.kernel.stacking import temperature
from posterity.predictive.exact import AveragedNetworks
from posterity.predictive.on_features import HeadOnFeatures, features_at
from posterity.workflow.problem import Problem
from posterity.workflow.ways.candidate import Candidate, Options


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
    fit = classify(features, examples.targets, leave_out.folds, classes=examples.outputs)
    # Of examples whose class would be empty without them it says nothing: there it is as good as elsewhere.
    known = fit.left_out.gather(1, fit.labels[fit.judged, None]).squeeze(1)
    probs = features.new_full((examples.count,), float(known.mean().exp()) if len(known) else 1.0)
    probs[fit.judged.to(probs.device)] = known.exp().to(probs)
    # Its variance is not asked for, and would hold the span of the training rows.
    empty = Axes(fit.head.axes.vectors[:, :0], fit.head.axes.values[:0])
    soft = Calibration(0.0, 1.0 if len(fit.judged) else options.recipe.stacking.unjudged)
    predictor = HeadOnFeatures(point, layer, replace(fit.head, axes=empty), soft, problem.likelihood, options.link)
    return Candidate(problem.prior, problem.likelihood, predictor, probs[leave_out.judged])
