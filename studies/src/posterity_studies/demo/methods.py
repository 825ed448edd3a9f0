"""The contenders: what each knows of the nine others, and how it learns from the seconds that the new wearer shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posterity as pt
from posterity.predictive.prediction import categorical_entropy
from posterity_studies.demo.source import at_mean, network
from posterity_studies.shared.watch import Meeting

METHODS = {
    "learned": "learned prior",
    "isotropic": "isotropic at the mean",
    "ensemble": "ensemble of five",
    "tuned": "plain fine-tuning",
    "none": "no adaptation",
    "scratch": "from scratch",
}
STEPS = (0, 5, 10, 20, 50, 100)
"""Steps of Adam that fine-tuning chooses from, by folds of what was shown; none at all is one of them."""
FOLDS = 4

Predictor = Callable[[Tensor], "Answer"]


@dataclass(frozen=True, eq=False)
class Answer:
    """Probabilities of the exercises, and a score that should be high where the exercise is unknown."""

    probs: Tensor
    score: Tensor


def adapted(meeting: Meeting, prior: pt.Gaussian, seconds: int, shares: Sequence[float] | None = None) -> pt.Fit:
    """Posterity: no training at all, and every choice by leaving out what was shown."""
    return pt.adapt(
        at_mean(prior),
        prior,
        meeting.shown(seconds).pair,
        classes=meeting.classes,
        shares=shares,
        generator=torch.Generator().manual_seed(0),
        progress=False,
    )


def of_fit(fit: pt.Fit) -> Predictor:
    def predict(x: Tensor) -> Answer:
        found = fit.predict(x)
        assert found.unknown is not None
        return Answer(found.probs, found.unknown)

    return predict


def of_network(*models: nn.Module) -> Predictor:
    """One network, or the average of several; the score is the entropy."""

    @torch.no_grad()
    def predict(x: Tensor) -> Answer:
        probs = torch.stack([model(x).softmax(-1) for model in models]).mean(0)
        return Answer(probs, categorical_entropy(probs))

    return predict


def fine_tuned(
    meeting: Meeting, start: nn.Module, seconds: int, steps: Sequence[int] = STEPS, rate: float = 1e-3
) -> tuple[nn.Module, int]:
    """The usual way: go on training on what was shown, for as many steps as serve windows that were left out best."""
    x, y = meeting.shown(seconds).pair
    # Every fold leaves out windows of all exercises.
    fold = torch.arange(len(y)) % FOLDS
    left_out = torch.zeros(len(steps))
    for number in range(FOLDS):
        inside, outside = fold != number, fold == number
        for k, model in enumerate(_training(start, x[inside], y[inside], steps, rate)):
            with torch.no_grad():
                left_out[k] += F.cross_entropy(model(x[outside]), y[outside], reduction="sum")
    best = steps[int(left_out.argmin())]
    return trained(start, (x, y), best, rate), best


def trained(start: nn.Module, shown: tuple[Tensor, Tensor], steps: int, rate: float = 1e-3) -> nn.Module:
    """The network after so many steps on what was shown."""
    (model,) = _training(start, *shown, [steps], rate)
    return model


def from_scratch(meeting: Meeting, seconds: int, steps: Sequence[int] = STEPS) -> tuple[nn.Module, int]:
    """A network that knows nobody but the new wearer."""
    return fine_tuned(meeting, network(len(meeting.classes), seed=meeting.wearer), seconds, steps, rate=3e-3)


def _training(start: nn.Module, x: Tensor, y: Tensor, steps: Sequence[int], rate: float) -> Iterator[nn.Module]:
    """The network after each number of steps, on all windows at once."""
    model = deepcopy(start)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    done = 0
    for until in steps:
        while done < until:
            optimiser.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimiser.step()
            done += 1
        yield model
