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
    "isotropic": "isotropic around the source weights",
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
        meeting.shown(seconds).pair,
        prior,
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
    order = torch.arange(len(y)).view(-1, FOLDS).mT
    inside = torch.stack([torch.cat([*order[:k], *order[k + 1 :]]) for k in range(FOLDS)])
    left_out = []
    for copies in _training(start, x[inside], y[inside], steps, rate):
        with torch.no_grad():
            logits = copies(x[order]).flatten(0, 1)
        left_out.append(float(F.cross_entropy(logits, y[order].flatten(), reduction="sum")))
    best = steps[min(range(len(steps)), key=left_out.__getitem__)]
    return trained(start, (x, y), best, rate), best


def trained(start: nn.Module, shown: tuple[Tensor, Tensor], steps: int, rate: float = 1e-3) -> nn.Module:
    """The network after so many steps on what was shown."""
    x, y = shown
    (copies,) = _training(start, x[None], y[None], [steps], rate)
    return copies.first()


def from_scratch(meeting: Meeting, seconds: int, steps: Sequence[int] = STEPS) -> tuple[nn.Module, int]:
    """A network that knows no one but the new wearer."""
    return fine_tuned(meeting, network(len(meeting.classes), seed=meeting.wearer), seconds, steps, rate=3e-3)


@dataclass(frozen=True)
class _NetworkCopies:
    """Copies of a network that are trained side by side, each on windows of its own.

    With so few windows most of the time goes into starting operations: four copies at once cost less than half of four.
    """

    start: nn.Module
    weights: dict[str, Tensor]

    @classmethod
    def of(cls, start: nn.Module, count: int) -> _NetworkCopies:
        weights = {name: p.detach().repeat(count, *[1] * p.ndim) for name, p in start.named_parameters()}
        return cls(start, {name: w.requires_grad_() for name, w in weights.items()})

    def __call__(self, x: Tensor) -> Tensor:
        return torch.func.vmap(lambda w, own: torch.func.functional_call(self.start, w, (own,)))(self.weights, x)

    def first(self) -> nn.Module:
        """The first copy as a network of its own."""
        model = deepcopy(self.start)
        model.load_state_dict({name: w[0].detach() for name, w in self.weights.items()})
        return model


def _training(start: nn.Module, x: Tensor, y: Tensor, steps: Sequence[int], rate: float) -> Iterator[_NetworkCopies]:
    """A copy of the network for each set of windows, after each number of steps on all of its windows at once."""
    copies = _NetworkCopies.of(start, len(x))
    # Adam goes weight by weight, and each copy has a loss of its own: none touches another.
    optimiser = torch.optim.Adam(copies.weights.values(), lr=rate, fused=True)
    done = 0
    for until in steps:
        while done < until:
            optimiser.zero_grad()
            losses = F.cross_entropy(copies(x).flatten(0, 1), y.flatten(), reduction="none")
            losses.view(y.shape).mean(1).sum().backward()
            optimiser.step()
            done += 1
        yield copies
