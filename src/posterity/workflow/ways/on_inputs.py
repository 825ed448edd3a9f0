"""Models of a table's inputs themselves: candidates that are not the network, and cost little."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor

from posterity.predictive.beside_network import InputModelPredictor
from posterity.tables import TableFit, fit_linear, fit_process, fit_process_classes, fit_trees
from posterity.workflow.problem import Problem
from posterity.workflow.ways.candidate import Candidate, Options

Fitting = Callable[[Float[Tensor, "n d"], Tensor, Tensor, int], TableFit]


def _process(x: Tensor, y: Tensor, folds: Tensor, classes: int) -> TableFit:
    return fit_process_classes(x, y, folds, classes) if classes else fit_process(x, y, folds)


FITTED: dict[str, Fitting] = {
    "linear on the inputs": fit_linear,
    "Gaussian process on the inputs": _process,
    "forest on the inputs": partial(fit_trees, "forest"),
    "boosted trees on the inputs": partial(fit_trees, "boosted"),
}


def on_inputs(way: str, problem: Problem, options: Options, network: Candidate) -> Candidate:
    """One of them, in double precision, judged by the same folds as every candidate; the network stays as it is."""
    assert problem.examples is not None
    examples = problem.examples
    x, targets = examples.whole.positional[0].double().cpu(), examples.targets.cpu()
    classes = 0 if problem.is_regression else examples.outputs
    y = targets if classes else targets[:, 0].double()
    found = FITTED[way](x, y, problem.leave_out.folds.cpu(), classes)
    judged = problem.leave_out.judged.cpu()
    moments = None if found.moments is None else found.moments[:, judged]
    predictor = InputModelPredictor(found.model, network.likelihood, options.link)
    return Candidate(network.prior, network.likelihood, predictor, found.scores[judged].exp(), moments)
