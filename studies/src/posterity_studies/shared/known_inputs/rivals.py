"""What others would write in a few lines to find unknown inputs, on the same network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from posterity.novelty.whitening import Whitening
from posterity_studies.shared.known_inputs.problems import LayerInputs, Problem

Rival = Callable[[Problem], Callable[[LayerInputs], Tensor]]


def _neighbours(k: int, unit: bool) -> Rival:
    def of(problem: Problem) -> Callable[[LayerInputs], Tensor]:
        scale = normalize if unit else (lambda x: x)
        known = scale(_all_known(problem))
        return lambda inputs: torch.cdist(scale(inputs.head), known).kthvalue(min(k, len(known)), 1).values

    return of


def _input_neighbours(problem: Problem) -> Callable[[LayerInputs], Tensor]:
    first = next(iter(problem.known.features))
    known = problem.known.features[first].double()
    return lambda inputs: torch.cdist(inputs.features[first].double(), known).kthvalue(min(5, len(known)), 1).values


def _mahalanobis(problem: Problem) -> Callable[[LayerInputs], Tensor]:
    whitening = Whitening.of(_all_known(problem))
    return lambda inputs: whitening(inputs.head).square().sum(1)


def _class_mahalanobis(problem: Problem) -> Callable[[LayerInputs], Tensor]:
    head, labels = problem.known.head, problem.labels
    means = torch.stack([head[labels == c].mean(0) for c in labels.unique()])
    within = Whitening.of(head - means[labels.unique(return_inverse=True)[1]])
    return lambda inputs: torch.stack([within(inputs.head - m).square().sum(1) for m in means], 1).min(1).values


def _all_known(problem: Problem) -> Tensor:
    """Target and source, as whoever has both would take them."""
    if problem.source is None:
        return problem.known.head
    return torch.cat((problem.known.head, list(problem.source.values())[-1].double()))


RIVALS: dict[str, Rival] = {
    "neighbours (5)": _neighbours(5, False),
    "neighbours (10)": _neighbours(10, False),
    "neighbours (5), unit length": _neighbours(5, True),
    "neighbours (10), unit length": _neighbours(10, True),
    "Mahalanobis": _mahalanobis,
    "Mahalanobis by class": _class_mahalanobis,
    "energy": lambda problem: lambda inputs: -inputs.logits.double().logsumexp(-1),
    "max probability": lambda problem: lambda inputs: -inputs.logits.double().softmax(-1).max(-1).values,
    "entropy": lambda problem: lambda inputs: inputs.moments(inputs.head[:1])["entropy"],
    "input neighbours (5)": _input_neighbours,
}
