"""Heads on frozen features: ours with all labels, and the rivals, who keep half of the labels to choose by."""

from __future__ import annotations

import copy
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posterity.workflow import posterior
from posterity.workflow.ways.last_layer import AROUND
from posterity_studies.shared.answers import Answer, entropy
from posterity_studies.shared.many_classes import FOLDS, HIGH, LOW, at_edge, structured_head
from posterity_studies.shared.rivals import laplace_torch
from posterity_studies.shared.rivals.absent import RivalMissing
from posterity_studies.shared.rivals.training import Pair, dropped, nll
from posterity_studies.shared.shots import Shots
from posterity_studies.shared.softmax_regression import Refits, Span, descend, fit

NAMES = {
    "ours": "ours: exact head, leave-one-out, all labels",
    "same n": "ours, the training half alone",
    "cross": "probe, five folds, all labels",
    "probe": "linear probe",
    "tuned": "plain fine-tuning of the head",
    "dropout": "MC dropout",
    "laplace": "laplace-torch, last layer",
    "ensemble": "ensemble of 5",
}
MANY = 40
"""From so many classes on our head is structured and laplace-torch is left out, both for their price."""
MEMBERS = 5
BATCH, STEPS = 128, 240
CHECKED = (5, 10, 20, 30, 60, 120, 240)
"""Steps after which plain fine-tuning looks at the validation set."""
RATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
LEARNING = tuple(10 ** (k / 2) for k in range(-12, 1))
DRAWS = 30
CHOSEN = ("precision", "tau", "temperature", "loo")
MAPS = (-12, 40)
"""Prior precisions of laplace-torch are 10^(k/2), k between these. At the largest it is the probe itself, to the last digit."""


def every_method(shots: Shots, who: str, seed: int) -> dict[str, Any]:
    """Measures of "ours" with the probe that has as many labels, or of "rivals"."""
    values: dict[str, Any] = {}
    ways = _with_all_labels(shots) if who == "ours" else _Rivals(shots, seed).ways()
    for name, way in ways:
        begin = time.process_time()
        try:
            answer, owed = way()
        except RivalMissing as reason:
            values[name] = {"skipped": str(reason)}
            continue
        values[name] = answer.values(shots.test[1], time.process_time() - begin + owed)
    return values


Way = Callable[[], tuple[Answer, float]]
"""An answer, and the seconds that others have spent on what it shares with them."""


def _with_all_labels(shots: Shots) -> Iterator[tuple[str, Way]]:
    begin = time.process_time()
    refits = Refits(Span.of(shots.both[0]), shots.both[1], FOLDS)
    many = shots.classes >= MANY
    spent = time.process_time() - begin

    def cross() -> tuple[Answer, float]:
        k = descend(lambda k: float(F.cross_entropy(refits.outputs(k), refits.y)), 2, LOW, HIGH)
        span = refits.span
        head = fit(span.rows, span.lengths, refits.y, shots.classes, 10 ** (k / 2))
        return _plain(lambda x: (span.coordinates(x) @ head).softmax(-1), shots, _chosen(k)), spent

    yield "cross", cross
    yield "ours", lambda: (structured(shots, refits) if many else exact(shots, shots.both), spent if many else 0.0)
    if not many:
        yield "same n", lambda: (exact(shots, shots.train), 0.0)


def exact(shots: Shots, data: Pair) -> Answer:
    """The library's exact posterior of a last layer: strength, width and softness by leave-one-out."""
    span = Span.of(data[0], bias=False)
    model = nn.Sequential(OrderedDict(fc=nn.Linear(span.rows.shape[1] + 1, shots.classes)))
    made = posterior(model, (span.reduced(data[0]), data[1]), blocks=["fc"])
    inside, outside = (made.predict(span.reduced(x)) for x in (shots.test[0], shots.unknown))
    assert made.choice is not None
    assert inside.unknown is not None
    assert outside.unknown is not None
    best = made.choice.best
    strength, calibration = best.posterior.strength, best.calibration
    assert strength is not None
    numbers = (strength.head, calibration.tau, calibration.temperature, best.nll)
    extra = {name: float(f"{value:.5g}") for name, value in zip(CHOSEN, numbers, strict=True)}
    return Answer(
        inside.probs, inside.unknown, outside.unknown, extra | {"edge": _library_edge(strength.head, data[0])}
    )


def _library_edge(precision: float, x: Tensor) -> bool:
    """Whether the library chose the last strength that it would have tried: `AROUND` half powers of ten from the middle."""
    middle = round(2 * math.log10((1 + float(x.double().square().sum(-1).mean())) / 30))
    return abs(round(2 * math.log10(precision)) - middle) >= AROUND


def structured(shots: Shots, refits: Refits) -> Answer:
    """The same for many classes: an exact mode, a structured posterior, five folds instead of one example left out."""
    head = structured_head(*shots.both, refits)
    inside, outside = (entropy(head.predict(x, tempered=False)) for x in (shots.test[0], shots.unknown))
    numbers = (head.precision, head.tau, head.temperature, head.nll)
    extra = {name: float(f"{value:.5g}") for name, value in zip(CHOSEN, numbers, strict=True)}
    return Answer(head.predict(shots.test[0]), inside, outside, extra | {"edge": at_edge(head), "structured": True})


class _Rivals:
    """Everyone trains with one half of the labels and chooses by the other."""

    def __init__(self, shots: Shots, seed: int) -> None:
        self.shots, self.seed, self.classes = shots, seed, shots.classes
        begin = time.process_time()
        self.span = Span.of(shots.train[0])
        self.held = self.span.coordinates(shots.held[0])
        self.k = 2
        self.basis = time.process_time() - begin

    def ways(self) -> Iterator[tuple[str, Way]]:
        yield "probe", self._probe
        yield "tuned", self._tuned
        yield "dropout", self._dropout
        yield "laplace", self._laplace
        yield "ensemble", self._ensemble

    def _fit(self, k: int, weights: Tensor | None = None) -> Tensor:
        return fit(self.span.rows, self.span.lengths, self.shots.train[1], self.classes, 10 ** (k / 2), weights)

    def _probe(self) -> tuple[Answer, float]:
        begin = time.process_time()
        y = self.shots.held[1]
        self.k = descend(lambda k: float(F.cross_entropy(self.held @ self._fit(k), y)), 2, LOW, HIGH)
        self.head = self._fit(self.k)
        self.probed = time.process_time() - begin + self.basis
        answer = _plain(lambda x: (self.span.coordinates(x) @ self.head).softmax(-1), self.shots, _chosen(self.k))
        return answer, self.basis

    def _tuned(self) -> tuple[Answer, float]:
        """Adam without decay, stopped where the validation set says so."""
        made: dict[int, tuple[nn.Module, int]] = {}

        def loss(k: int) -> float:
            best = (float("inf"), 0, None)
            for step, model in self._trained(LEARNING[k], 0.0, 0.0):
                if step in CHECKED:
                    value = nll(_probs(model, self.shots.held[0]), self.shots.held[1])
                    if value < best[0]:
                        best = (value, step, copy.deepcopy(model))  # type: ignore[assignment]
            made[k] = best[2], best[1]  # type: ignore[assignment]
            return best[0]

        k = descend(loss, LEARNING.index(1e-3), 0, len(LEARNING) - 1)
        model, steps = made[k]
        extra = {"lr": float(f"{LEARNING[k]:.4g}"), "steps": steps, "edge": k in (0, len(LEARNING) - 1)}
        return _plain(lambda x: _probs(model, x), self.shots, extra), 0.0

    def _dropout(self) -> tuple[Answer, float]:
        """Dropout on the features, with the probe's decay; the rate is chosen."""
        made: dict[int, nn.Module] = {}
        decay = 10 ** (self.k / 2) / len(self.shots.train[1])

        def loss(k: int) -> float:
            for step, model in self._trained(3e-3, decay, RATES[k]):
                if step == STEPS:
                    made[k] = model
            return nll(_averaged(made[k], self.shots.held[0]), self.shots.held[1])

        k = descend(loss, RATES.index(0.3), 0, len(RATES) - 1)
        extra = {"rate": RATES[k], "edge": k in (0, len(RATES) - 1)}
        return _plain(lambda x: _averaged(made[k], x), self.shots, extra), self.probed

    def _trained(self, lr: float, decay: float, rate: float) -> Iterator[tuple[int, nn.Module]]:
        """A head after every step of Adam, its learning rate falling to zero."""
        x, y = self.shots.train
        draw = torch.Generator().manual_seed(self.seed)
        head = nn.Linear(x.shape[1], self.classes)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        model = nn.Sequential(nn.Dropout(rate), head)
        optimiser = torch.optim.Adam(head.parameters(), lr)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for step in range(1, STEPS + 1):
                model.train()
                some = torch.randint(len(x), (BATCH,), generator=draw) if len(x) > BATCH else slice(None)
                loss = F.cross_entropy(model(x[some]), y[some]) + decay / 2 * head.weight.square().sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                falling.step()
                yield step, model.eval()

    def _laplace(self) -> tuple[Answer, float]:
        """Around the probe, in the span's coordinates and one more: the length beyond it, which variances need."""
        if self.classes >= MANY:
            raise RivalMissing(f"{self.classes} classes: its Jacobians are too large")
        shots = self.shots
        train, held, test, unknown = (
            self.span.reduced(x) for x in (shots.train[0], shots.held[0], shots.test[0], shots.unknown)
        )
        head = nn.Linear(train.shape[1], self.classes)
        with torch.no_grad():
            head.weight.copy_(F.pad(self.head.mT, (0, 1)))
            head.bias.zero_()
        made = laplace_torch.classifier(nn.Sequential(nn.Identity(), head), (train, shots.train[1]), "last_layer", None)

        def loss(k: int) -> float:
            made.prior_precision = 10 ** (k / 2)
            return nll(laplace_torch.probabilities(made, held), shots.held[1])

        k = descend(loss, self.k, *MAPS)
        made.prior_precision = 10 ** (k / 2)
        inside, outside = (laplace_torch.probabilities(made, x) for x in (test, unknown))
        return Answer.by_entropy(
            inside, outside, {"precision": float(f"{10 ** (k / 2):.4g}"), "edge": k in MAPS}
        ), self.probed

    def _ensemble(self) -> tuple[Answer, float]:
        """Heads on bootstrap samples: fitted to the same rows, all would be one."""
        n, draw = len(self.shots.train[1]), torch.Generator().manual_seed(self.seed)
        drawn = [torch.randint(n, (n,), generator=draw).bincount(minlength=n).double() for _ in range(MEMBERS)]
        made: dict[int, Tensor] = {}

        def probs(z: Tensor, k: int) -> Tensor:
            if k not in made:
                made[k] = torch.stack([self._fit(k, weights) for weights in drawn])
            return (z @ made[k]).softmax(-1).mean(0)

        k = descend(lambda k: nll(probs(self.held, k), self.shots.held[1]), self.k, LOW, HIGH)
        answer = _plain(lambda x: probs(self.span.coordinates(x), k), self.shots, _chosen(k))
        return answer, self.basis


def _chosen(k: int) -> dict[str, Any]:
    return {"precision": float(f"{10 ** (k / 2):.4g}"), "edge": k in (LOW, HIGH)}


def _plain(probs: Callable[[Tensor], Tensor], shots: Shots, extra: Mapping[str, Any]) -> Answer:
    return Answer.by_entropy(probs(shots.test[0]), probs(shots.unknown), extra)


@torch.no_grad()
def _probs(model: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = model(x).softmax(-1)
    return found


def _averaged(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([dropped(model, part, DRAWS).softmax(-1).mean(0) for part in x.split(500)])
