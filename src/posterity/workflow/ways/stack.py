"""Candidates for a table become one predictor, by what each says of examples that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.data.leave_out import LeaveOut
from posterity.kernel.stacking import stacked
from posterity.novelty import of_inputs
from posterity.predictive.predictor import Predictor, Stack
from posterity.tables import stacked_numbers
from posterity.workflow.problem import Problem
from posterity.workflow.ways.candidate import Candidate, Options, deviations_from


def table_stack(problem: Problem, found: Sequence[Candidate], options: Options) -> tuple[Stack, Candidate]:
    """Weights that make left-out targets most probable, with a pseudo-count each; examples of one group count as one.

    The average of classes is one of probabilities, that of numbers a normal one with the mixture's mean and variance. Also
    the first candidate, whose weights the network has, with what the average says of left-out targets; unknown inputs are found
    by the inputs themselves, as the models see them.
    """
    assert problem.examples is not None
    recipe, leave_out = options.recipe.inputs, problem.leave_out
    candidates = [c for c in found if c.predictor is not None]
    probs = deviations = None
    counts = torch.full((len(candidates),), recipe.count, dtype=torch.float64)
    if problem.is_regression:
        both = torch.stack([cast(Tensor, c.moments) for c in candidates], 1).cpu()
        known = both.isfinite().all(0).all(0)
        y = problem.examples.targets[:, 0].double().cpu()[known]
        means, variances = both[:, :, known]
        weights = stacked_numbers(y, means, variances, counts)
        mean = weights @ means
        deviations = deviations_from(torch.stack([mean, weights @ (variances + means.square()) - mean.square()]), y)
    else:
        scores = torch.stack([cast(Tensor, c.probs) for c in candidates]).cpu().log()
        known = scores.isfinite().all(0)
        weights = stacked(_of_groups(scores[:, known], leave_out, known), counts)
        probs = weights @ scores[:, known].exp()
    weights = torch.where(weights < recipe.least, 0.0, weights)
    shares = (weights / weights.sum()).tolist()
    stack = Stack(tuple((w, cast(Predictor, c.predictor)) for w, c in zip(shares, candidates, strict=True) if w))
    if not bool(known.all()):
        probs = deviations = None
    reference = of_inputs(problem.examples.whole, leave_out)
    first = found[0]
    return stack, replace(first, probs=probs, deviations=deviations, reference=reference, carried=first.reference)


def _of_groups(scores: Float[Tensor, "k n"], leave_out: LeaveOut, known: Tensor) -> Float[Tensor, "k groups"]:
    """The mean score of each group."""
    if leave_out.together is None:
        return scores
    labels, own = torch.unique(leave_out.together.cpu()[known], return_inverse=True)
    return scores.new_zeros(len(scores), len(labels)).index_add_(1, own, scores) / own.bincount()
