"""Candidates for a table become one predictor, by what each says of examples that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.data.leave_out import LeaveOut
from posterity.kernel.stacking import stacked
from posterity.predictive.predictor import Predictor, Stack
from posterity.tables import stacked_numbers
from posterity.workflow.problem import Problem
from posterity.workflow.ways.candidate import Candidate, Options


def table_stack(problem: Problem, candidates: Sequence[Candidate], options: Options) -> Stack:
    """Weights that make left-out targets most probable, with a pseudo-count each; examples of one group count as one.

    The average of classes is one of probabilities, that of numbers a normal one with the mixture's mean and variance.
    """
    recipe, leave_out = options.recipe.inputs, problem.leave_out
    candidates = [c for c in candidates if c.predictor is not None]
    counts = torch.full((len(candidates),), recipe.count, dtype=torch.float64)
    if problem.is_regression:
        assert problem.examples is not None
        both = torch.stack([cast(Tensor, c.moments) for c in candidates], 1).cpu()
        known = both.isfinite().all(0).all(0)
        y = problem.examples.targets[:, 0].double().cpu()[known]
        means, variances = both[:, :, known]
        weights = stacked_numbers(y, means, variances, counts)
    else:
        scores = torch.stack([cast(Tensor, c.probs) for c in candidates]).cpu().log()
        known = scores.isfinite().all(0)
        weights = stacked(_of_groups(scores[:, known], leave_out, known), counts)
    weights = torch.where(weights < recipe.least, 0.0, weights)
    shares = (weights / weights.sum()).tolist()
    return Stack(tuple((w, cast(Predictor, c.predictor)) for w, c in zip(shares, candidates, strict=True) if w))


def _of_groups(scores: Float[Tensor, "k n"], leave_out: LeaveOut, known: Tensor) -> Float[Tensor, "k groups"]:
    """The mean score of each group."""
    if leave_out.together is None:
        return scores
    labels, own = torch.unique(leave_out.together.cpu()[known], return_inverse=True)
    return scores.new_zeros(len(scores), len(labels)).index_add_(1, own, scores) / own.bincount()
