"""A network that does not predict: trained briefly, for the Gaussian over weights that is handed down and certified."""

from __future__ import annotations

import torch

from posterity.blocks import evaluating, find_blocks, named, write_blocks
from posterity.curvature import GaussianNoise
from posterity.data.provenance import past_of, sign, together
from posterity.workflow.problem import Problem
from posterity.workflow.ways.candidate import Candidate, Options
from posterity.workflow.ways.networks import trained_under

SHARP = 20.0
"""The precision of the noise that numbers are trained under, times their variance. Under 1 the prior holds weights at zero."""


def network_aside(problem: Problem, options: Options) -> Candidate:
    """The user's network, trained on all examples under the default prior."""
    examples, model, likelihood = problem.examples, problem.model, problem.likelihood
    assert examples is not None
    learns = isinstance(likelihood, GaussianNoise) and likelihood.is_learned
    if learns:
        likelihood = GaussianNoise(SHARP / max(float(examples.targets.var()), 1e-8))
    seed = int(torch.randint(2**31, (), generator=options.generator))
    started = past_of(model)
    weights = trained_under(model, problem.prior, examples.whole, likelihood, options.recipe.aside, seed)
    model.load_state_dict(write_blocks(find_blocks(model, named(weights)), weights), strict=False)
    sign(model, together([started, problem.prior.provenance, problem.seen]))
    if learns:
        with torch.no_grad(), evaluating(model):
            squared = float(
                (examples.whole.outputs(model).view_as(examples.targets) - examples.targets).square().mean()
            )
        likelihood = GaussianNoise(1 / max(squared, 1e-8))
    return Candidate(problem.prior, likelihood)
