"""Every way to be sure of a classifier, on one task, from the same start and with the same budget."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from posterity.gaussian import Gaussian
from posterity.predictive import ood_auroc
from posterity.predictive.exact import AveragedNetworks
from posterity.predictive.predictor import Stack
from posterity.workflow import Fit, adapt, learn
from posterity_studies.shared.answers import Answer, entropy
from posterity_studies.shared.rivals import ivon, laplace_torch
from posterity_studies.shared.rivals.absent import RivalMissing
from posterity_studies.shared.rivals.training import (
    PULLS,
    RATES,
    Budget,
    Pair,
    Parts,
    dropped,
    least,
    nll,
    outputs,
    probabilities,
    temperature,
    towards_start,
    trained,
    with_dropout,
)

NAMES = {
    "default": "ours, default call",
    "adapt": "ours, without training",
    "isotropic": "ours, isotropic around the source weights",
    "mode": "ours, mode alone",
    "map": "plain training (MAP)",
    "temperature": "temperature scaling",
    "l2sp": "L2-SP",
    "dropout": "MC dropout",
    "laplace marglik": "laplace-torch, last layer, marglik",
    "laplace gridsearch": "laplace-torch, last layer, gridsearch",
    "laplace all": "laplace-torch, all layers, marglik",
    "ivon": "IVON",
    "ensemble": "ensemble of 5",
}
DECAY = 5e-4
"""The weight decay of a network trained from scratch."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One task for all methods."""

    starts: Sequence[nn.Sequential]
    """Networks to start from, of which the first is everybody's and all are the ensemble's."""
    train: Pair
    test: Pair
    unknown: Tensor
    """Inputs of no class."""
    budget: Budget
    seed: int
    prior: Gaussian | None = None
    """Around the first of the starts as the source left it."""
    classes: tuple[str, ...] = ()
    new_head: bool = False
    all_layers: bool = True
    """Whether laplace-torch's posterior over all layers is within reach."""


def every_method(problem: Problem, who: str) -> dict[str, Any]:
    """Measures of all of "ours" or of all "rivals"; a method that cannot take part leaves its reason."""
    rivals = _Rivals(problem)
    ways: dict[str, Callable[[], Answer]] = dict(_ours(problem) if who == "ours" else rivals.ways())
    values: dict[str, Any] = {}
    for name, way in ways.items():
        begin = time.process_time()
        try:
            answer = way()
        except RivalMissing as reason:
            values[name] = {"skipped": str(reason)}
            continue
        # What rivals share was computed for the first that asked: every one is charged for it.
        seconds = time.process_time() - begin + rivals.owed.get(name, 0.0)
        values[name] = answer.values(problem.test[1], seconds)
    return values


def _ours(problem: Problem) -> Iterator[tuple[str, Callable[[], Answer]]]:
    kept: dict[str, Fit] = {}

    def default() -> Answer:
        model = copy.deepcopy(problem.starts[0])
        generator = torch.Generator().manual_seed(problem.seed)
        kept["default"] = learn(
            model, problem.train, problem.prior, classes=problem.classes, generator=generator, progress=False
        )
        return _predicted(kept["default"], problem)

    def isotropic() -> Answer:
        assert problem.prior is not None
        model = copy.deepcopy(problem.starts[0])
        # What `learn` does, with shares of the source out of the grid.
        options: dict[str, Any] = {"shares": (0.0,), "polish": True, "progress": False}
        return _predicted(adapt(model, problem.train, problem.prior, classes=problem.classes, **options), problem)

    def without_training() -> Answer:
        return _predicted(_without_networks(kept["default"]), problem)

    yield "default", default
    if problem.prior is not None:
        yield "adapt", without_training
        yield "isotropic", isotropic
    yield "mode", lambda: _plain(kept["default"].model.eval(), problem)


def _without_networks(fit: Fit) -> Fit:
    """The exact posterior around the prior's mean, without candidates beside it."""
    return replace(fit, predictor=fit.predictor.parts[0][1]) if isinstance(fit.predictor, Stack) else fit


def _predicted(fit: Fit, problem: Problem) -> Answer:
    inside, outside = fit.predict(problem.test[0]), fit.predict(problem.unknown)
    extra: dict[str, Any] = {"entropy auroc": float(f"{ood_auroc(entropy(inside.probs), entropy(outside.probs)):.5g}")}
    if fit.choice is not None:
        extra["chosen"] = [
            [
                round(m.weight, 3),
                *([] if (s := m.posterior.strength) is None else [s.share, min(s.floor, 1e30), s.head]),
            ]
            for m in fit.choice.members
        ]
        if isinstance(fit.predictor, Stack):
            weight, networks = fit.predictor.parts[-1]
            if isinstance(networks, AveragedNetworks):
                extra["networks"] = [round(weight, 3), round(networks.calibration.temperature, 3)]
    familiar, unfamiliar = (entropy(p.probs) if p.unknown is None else p.unknown for p in (inside, outside))
    return Answer(inside.probs, familiar, unfamiliar, extra)


class _Rivals:
    """The other ways, with the two networks that several of them stand on."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.parts = Parts.of(problem.train, problem.seed)
        self.decay = 0.0 if problem.prior is not None else DECAY
        self.owed: dict[str, float] = {}
        self._made: dict[str, tuple[nn.Module, float]] = {}

    def ways(self) -> Iterator[tuple[str, Callable[[], Answer]]]:
        yield "map", lambda: _plain(self._whole("map"), self.problem)
        yield "temperature", self._temperature
        if self.problem.prior is not None:
            yield "l2sp", self._l2sp
        yield "dropout", self._dropout
        yield "laplace marglik", lambda: self._laplace("laplace marglik", "last_layer", held_out=False)
        yield "laplace gridsearch", lambda: self._laplace("laplace gridsearch", "last_layer", held_out=True)
        if self.problem.all_layers:
            yield "laplace all", lambda: self._laplace("laplace all", "all", held_out=False)
        yield "ivon", self._ivon
        yield "ensemble", self._ensemble

    def _whole(self, name: str) -> nn.Module:
        """The network trained with all examples."""
        return self._shared("whole", name, self.problem.train)

    def _four_fifths(self, name: str) -> nn.Module:
        return self._shared("four fifths", name, self.parts.kept)

    def _shared(self, which: str, name: str, data: Pair) -> nn.Module:
        if which not in self._made:
            begin = time.process_time()
            model = self._train(self.problem.starts[0], data)
            self._made[which] = model, time.process_time() - begin
        else:
            self.owed[name] = self._made[which][1]
        return self._made[which][0]

    def _train(self, start: nn.Module, data: Pair, seed: int = 0, **options: Any) -> nn.Module:
        return trained(start, data, self.problem.budget, self.problem.seed + seed, decay=self.decay, **options)

    def _temperature(self) -> Answer:
        model = self._four_fifths("temperature")
        x, y = self.parts.held
        t = temperature(outputs(model, x), y)
        return _plain(model, self.problem, t, {"temperature": round(t, 3)})

    def _l2sp(self) -> Answer:
        start = self.problem.starts[0]

        def model(pull: float, data: Pair) -> nn.Module:
            return self._train(start, data, penalty=towards_start(start, pull, self.problem.new_head))

        x, y = self.parts.held
        pull = least(PULLS, lambda pull: nll(probabilities(model(pull, self.parts.kept), x), y))
        return _plain(model(pull, self.problem.train), self.problem, extra={"pull": pull})

    def _dropout(self) -> Answer:
        def model(rate: float, data: Pair) -> nn.Module:
            return self._train(with_dropout(self.problem.starts[0], rate), data)

        x, y = self.parts.held
        rate = least(RATES, lambda r: nll(dropped(model(r, self.parts.kept), x).softmax(-1).mean(0), y))
        final = model(rate, self.problem.train)
        return self._asked(lambda z: dropped(final, z).softmax(-1).mean(0), {"rate": rate})

    def _laplace(self, name: str, weights: laplace_torch.Weights, held_out: bool) -> Answer:
        if held_out:
            made = laplace_torch.classifier(self._four_fifths(name), self.parts.kept, weights, self.parts.held)
        else:
            made = laplace_torch.classifier(self._whole(name), self.problem.train, weights)
        return self._asked(lambda z: laplace_torch.probabilities(made, z))

    def _ivon(self) -> Answer:
        problem, (x, y) = self.problem, self.parts.held

        def probs(option: float, data: Pair, *asked: Tensor) -> list[Tensor]:
            found = ivon.outputs(problem.starts[0], data, problem.budget, int(option), problem.seed, asked)
            return [draws.softmax(-1).mean(0) for draws in found]

        best = int(least(range(len(ivon.OPTIONS)), lambda option: nll(probs(option, self.parts.kept, x)[0], y)))
        inside, outside = probs(best, problem.train, problem.test[0], problem.unknown)
        return Answer.by_entropy(inside, outside, {"option": list(ivon.OPTIONS[best])})

    def _ensemble(self) -> Answer:
        models = [self._whole("ensemble")]
        models += [self._train(start, self.problem.train, i) for i, start in enumerate(self.problem.starts[1:], 1)]
        return self._asked(lambda z: torch.stack([probabilities(m, z) for m in models]).mean(0))

    def _asked(self, probs: Callable[[Tensor], Tensor], extra: Mapping[str, Any] | None = None) -> Answer:
        return Answer.by_entropy(probs(self.problem.test[0]), probs(self.problem.unknown), extra or {})


def _plain(model: nn.Module, problem: Problem, t: float = 1.0, extra: Mapping[str, Any] | None = None) -> Answer:
    return Answer.by_entropy(
        probabilities(model, problem.test[0], t), probabilities(model, problem.unknown, t), extra or {}
    )
