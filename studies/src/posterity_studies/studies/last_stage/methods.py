"""Ours in function space, with all labels; and networks trained with half of them, which choose by the other half."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posterity as pt
from posterity.algebra import scaled_identity
from posterity.kernel import FunctionPosterior
from posterity.kernel.choose import FAR_FLOORS, FAR_HEADS, unit
from posterity.kernel.kernels import FLOORS, HEADS
from posterity.workflow import posterior
from posterity_studies.shared.answers import Answer
from posterity_studies.shared.function_space import LEARNED, function_space, predicted
from posterity_studies.shared.last_stage import HEAD, LastStage, Source
from posterity_studies.shared.many_classes import HIGH, LOW
from posterity_studies.shared.rivals.training import nll
from posterity_studies.shared.shots import Shots
from posterity_studies.shared.softmax_regression import Span, descend, fit
from posterity_studies.studies.last_stage.paper import (
    GAMMA,
    OBJECTIVES,
    TAUS,
    Objective,
    TemperedNetwork,
    posterior_mode,
    tempered,
)

NAMES = {
    "learned": "ours: last stage and head, learned prior",
    "isotropic": "ours: last stage and head, isotropic prior",
    "head": "ours: exact head alone",
    "probe": "linear probe",
    "plain": "plain fine-tuning of the last stage",
    "l2-sp": "L2-SP: the mode under an isotropic prior",
    "map": "the mode under the learned prior",
    "paper": "the paper's recipe, reduced",
}
AT_ONCE = 50
"""Pictures a batch."""
LR, RATES = 1e-4, tuple(10 ** (k / 2) for k in range(-12, -3))
"""Of Adam: fixed where a prior holds the weights, chosen where nothing does."""
PULLS = tuple(10.0**k for k in range(-4, 7))
"""Precisions of L2-SP, beside the summed loss; and floors of the learned prior's mode."""
SHARE = 0.01
"""Of the learned prior's curvature where its mode is trained to, for a floor of 1: both grow together."""
CHECKS = 5
"""How often a validation set looks at a training."""

Way = Callable[[], tuple[Answer, float]]
"""An answer, and the seconds that others have spent on what it shares with them."""


def every_method(source: Source, shots: Shots, who: str, steps: int) -> dict[str, Any]:
    """Measures of "ours", who have all labels, or of "rivals" or the "paper", who choose by half of them."""
    values: dict[str, Any] = {}
    ways = _ours(source, shots) if who == "ours" else _Rivals(source, shots, steps).ways(who)
    for name, way in ways:
        begin = time.process_time()
        answer, owed = way()
        values[name] = answer.values(shots.test[1], time.process_time() - begin + owed)
    return values


def _ours(source: Source, shots: Shots) -> Iterator[tuple[str, Way]]:
    yield "head", lambda: (_head_alone(source, shots), 0.0)
    for name, share in {"isotropic": 0.0, "learned": LEARNED}.items():
        yield name, lambda share=share: (_in_function_space(source, shots, share), 0.0)  # type: ignore[misc]


def _in_function_space(source: Source, shots: Shots, share: float) -> Answer:
    """The exact posterior of the linearised stage around the prior's mean; strengths, width and softness by leave-one-out."""
    model = source.network(shots.classes)
    space = function_space(model, source.prior, shots.both, share)
    inside, outside = (predicted(space, model, x) for x in (shots.test[0], shots.unknown))
    best = space.choice.best
    strength = best.posterior.strength
    assert strength is not None
    chosen = {"share": strength.share, "floor": strength.floor, "head": strength.head, "tau": best.calibration.tau}
    extra = chosen | {"temperature": best.calibration.temperature, "loo": float(f"{best.nll:.5g}")}
    extra |= {"members": len(space.choice.members)}
    return Answer(inside.probs, inside.entropy, outside.entropy, extra | {"edge": _edge(best.posterior, share)})


def _edge(best: FunctionPosterior, share: float) -> bool:
    """Whether the floor or the head's strength is the first or the last of its grid."""
    strength = best.strength
    assert strength is not None
    moved = unit(best.of, 0.0, head=True) != 1 or unit(best.of, share) != 1
    floors, heads = (FAR_FLOORS, FAR_HEADS) if moved else (FLOORS, HEADS)
    body, head = unit(best.of, share, always=moved), unit(best.of, 0.0, head=True, always=moved)
    ends = [(strength.floor, floors[k] * body) for k in (0, -1)] + [(strength.head, heads[k] * head) for k in (0, -1)]
    return any(abs(found / end - 1) < 1e-6 for found, end in ends)


def _head_alone(source: Source, shots: Shots) -> Answer:
    """The library's exact posterior of a last layer, on the same pictures."""
    model = source.network(shots.classes)
    made = posterior(model, shots.both, blocks=[HEAD], batch_size=AT_ONCE, progress=False)
    inside, outside = (made.predict(x, batch_size=AT_ONCE) for x in (shots.test[0], shots.unknown))
    assert made.choice is not None
    extra = {"loo": float(f"{made.choice.best.nll:.5g}")}
    return Answer(inside.probs, inside.entropy, outside.entropy, extra)


class _Rivals:
    """Networks that begin at the probe chosen by validation, and are stopped by it: one half of the labels each."""

    def __init__(self, source: Source, shots: Shots, steps: int) -> None:
        self.source, self.shots, self.steps = source, shots, steps
        begin = time.process_time()
        self.start, self.decay = self._probe()
        self.spent = time.process_time() - begin

    def ways(self, who: str) -> Iterator[tuple[str, Way]]:
        if who == "paper":
            yield "paper", lambda: (self._published(), self.spent)
            return
        yield "probe", lambda: (self._answer(self.start, {"precision": self.decay, "edge": False}), self.spent)
        yield "plain", lambda: (self._chosen(RATES, RATES.index(1e-4), self._plain), self.spent)
        yield "l2-sp", lambda: (self._chosen(PULLS, PULLS.index(1.0), self._held_by(0.0)), self.spent)
        yield "map", lambda: (self._chosen(PULLS, PULLS.index(1.0), self._held_by(SHARE)), self.spent)

    @torch.no_grad()
    def _probe(self) -> tuple[LastStage, float]:
        """The head of least validation NLL on the stage as it is."""
        model, (x, y) = self.source.network(self.shots.classes), self.shots.train
        train, held = (_in_batches(model.features, maps) for maps in (x, self.shots.held[0]))
        span = Span.of(train)

        def head(k: int) -> Tensor:
            with torch.enable_grad():
                return span.basis @ fit(span.rows, span.lengths, y, self.shots.classes, 10 ** (k / 2))

        def loss(k: int) -> float:
            found = head(k)
            return float(F.cross_entropy(held.double() @ found[:-1] + found[-1], self.shots.held[1]))

        k = descend(loss, 2, LOW, HIGH)
        weights = head(k).float()
        model.fc.weight.copy_(weights[:-1].mT)
        model.fc.bias.copy_(weights[-1])
        return model, float(f"{10 ** (k / 2):.4g}")

    def _chosen(self, options: Sequence[float], first: int, train: Callable[[float], Iterator[nn.Module]]) -> Answer:
        """The network of least validation NLL over options, from neighbour to neighbour, and over checks on the way.

        Options are compared by what training made of them: the start, which all share, would leave the search on a plateau.
        """
        made: dict[int, tuple[float, int, nn.Module]] = {}

        def loss(k: int) -> float:
            made[k] = self._stopped(train(options[k]))
            return made[k][0]

        k = descend(loss, first, 0, len(options) - 1)
        _, steps, model = self._or_start(made[k])
        edge = steps > 0 and k in (0, len(options) - 1)
        return self._answer(model, {"option": float(f"{options[k]:.4g}"), "steps": steps, "edge": edge})

    def _stopped(self, training: Iterator[nn.Module]) -> tuple[float, int, nn.Module]:
        """The least validation NLL of a training, after how many steps, and the network there."""
        every = max(1, self.steps // CHECKS)
        best: tuple[float, int, nn.Module] | None = None
        for step, model in enumerate(training, 1):
            if step % every:
                continue
            found = self._held(model)
            if best is None or found < best[0]:
                best = (found, step, copy.deepcopy(model))
        assert best is not None
        return best

    def _or_start(self, made: tuple[float, int, nn.Module]) -> tuple[float, int, nn.Module]:
        """Where training has begun, if nothing on the way was better."""
        begun = self._held(self.start)
        return made if made[0] < begun else (begun, 0, self.start)

    def _published(self) -> Answer:
        """The paper's recipe: validation chooses the scales' way and the temperature."""
        body = self.source.prior.without(HEAD).adjusted(1.0, GAMMA)
        like = {name: p.detach() for name, p in self.start.fc.named_parameters()}
        head = torch.zeros(len(like["bias"]), like["weight"].shape[1] + 1)
        mean, precision = dict(body.mean) | {HEAD: head}, dict(body.precision)
        prior = pt.Gaussian(mean, precision | {HEAD: scaled_identity(self.decay, (len(head), head.shape[1]))})
        found: list[tuple[TemperedNetwork, int]] = []
        for scales, objective in OBJECTIVES.items():
            _, steps, model = self._or_start(self._stopped(self._trained(LR, body, objective())))
            found.append((tempered(model, prior, scales, self.shots.train, self.shots.held), steps))
        best, steps = min(found, key=lambda pair: pair[0].held)
        extra = {"scales": best.scales, "beta": float(f"{best.beta:.4g}"), "tau": best.tau, "steps": steps}
        inside, outside = (best.predict(x) for x in (self.shots.test[0], self.shots.unknown))
        return Answer.by_entropy(inside, outside, extra | {"edge": best.tau in (TAUS[0], TAUS[-1])})

    def _plain(self, lr: float) -> Iterator[nn.Module]:
        return self._trained(lr, None)

    def _held_by(self, share: float) -> Callable[[float], Iterator[nn.Module]]:
        """The mode under a prior around the stage's own weights: (share · the source's curvature + 1) times a strength."""
        body = self.source.prior.without(HEAD)

        def train(strength: float) -> Iterator[nn.Module]:
            if share:
                return self._trained(LR, body.adjusted(share * strength, strength))
            even = {name: scaled_identity(strength, matrix.shape) for name, matrix in body.precision.items()}
            return self._trained(LR, pt.Gaussian(body.mean, even))

        return train

    def _trained(
        self, lr: float, prior: pt.Gaussian | None, objective: Objective = posterior_mode
    ) -> Iterator[nn.Module]:
        """The network after every step of Adam on all training pictures, its rate falling to zero."""
        model, (x, y) = copy.deepcopy(self.start), self.shots.train
        penalty = None if prior is None else pt.laplace.PriorPenalty(prior, model, None)
        optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
        for _ in range(self.steps):
            optimiser.zero_grad()
            head = self.decay / 2 * (model.fc.weight.square().sum() + model.fc.bias.square().sum())
            forces, half = ({}, 0.0) if penalty is None else penalty.forces()
            quadratic = torch.tensor(half, requires_grad=True)
            (objective(F.cross_entropy(model(x), y), quadratic, len(y)) + head / len(y)).backward()
            if penalty is not None and quadratic.grad is not None:
                penalty.pull(forces, float(quadratic.grad))
            optimiser.step()
            falling.step()
            yield model

    def _held(self, model: nn.Module) -> float:
        return nll(_probs(model, self.shots.held[0]), self.shots.held[1])

    def _answer(self, model: nn.Module, extra: dict[str, Any]) -> Answer:
        return Answer.by_entropy(_probs(model, self.shots.test[0]), _probs(model, self.shots.unknown), extra)


def _probs(model: nn.Module, x: Tensor) -> Tensor:
    return _in_batches(model, x).softmax(-1)


@torch.no_grad()
def _in_batches(of: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.cat([of(part) for part in x.split(AT_ONCE)])
