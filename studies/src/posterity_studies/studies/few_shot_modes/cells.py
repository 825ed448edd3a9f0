"""One kind of prior, or networks without one, on one seed's pictures: trained to a mode, chosen by validation, tested once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.algebra import Matrix, scaled_identity
from posterity.data.hashes import fingerprint
from posterity.laplace import train
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.folders import RUNS
from posterity_studies.shared.answers import Answer
from posterity_studies.shared.flatness import flatness
from posterity_studies.shared.last_stage import HEAD, LastStage, Source, last_stage_kfoc, made_up
from posterity_studies.shared.pieces import Note, identity, kept
from posterity_studies.shared.rivals.training import nll
from posterity_studies.shared.shots import MADE_UP, Shots, drawn_maps
from posterity_studies.shared.softmax_regression import descend
from posterity_studies.studies.few_shot_modes.methods import SCALES, TAUS, Mode, ModeChoice, Posterior, chosen

PUBLISHED = (1e-6, 1e-8, 1e-10)
"""The paper's γ. Beside the pull of the pictures none can be distinguished from zero: one mode serves all three."""
TUNED = tuple(10.0**k for k in range(-2, 5))
SHARES = (1e-3, 1e-2, 1e-1, 1.0)
FLOOR = 1e-8
"""Beside the curvature of ImageNet in the learned prior: the middle one of the paper's γ."""
FLAT = 0.01
"""Nats a training picture: who gains no more in the last quarter of a piece of training has arrived."""
AFTERWARDS = ("who", "pieces", "looks", "draws", "tested", "unknown", "strangers")
"""Arguments that no training depends on."""
AT_ONCE = 50
MEMBERS, DROPOUT, PASSES = 5, 0.01, 20
"""Networks of an ensemble; the rate of MC dropout (the paper's in Section 4.2) and its passes."""


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Measures by method, and every mode that was trained: its objective over epochs and its validation NLL."""
    where = {name: arguments[name] for name in ("unknown", "size", "shots", "seed", "classes", "tested", "strangers")}
    shots = drawn_maps(arguments["set"], **where)
    source = made_up() if arguments["set"].startswith(MADE_UP) else last_stage_kfoc()
    bench = Bench(source, shots, arguments)
    methods = {"isotropic": bench.isotropic, "learned": bench.learned, "networks": bench.networks}[arguments["who"]]()
    counts = {"train": len(shots.train[1]), "held": len(shots.held[1]), "test": len(shots.test[1])}
    return {**counts, "methods": methods, "modes": bench.notes}


@dataclass(frozen=True, eq=False)
class Training:
    """A network on its way to a mode: after how many pieces of training, its validation NLL, and what the last piece gained."""

    name: str
    model: LastStage
    prior: pt.Gaussian | None
    order: int = 0
    pieces: int = 0
    held: float = math.inf
    gained: float = math.inf
    """In the last quarter of its epochs, in summed nats."""


class Bench:
    """All methods on one draw of pictures, with the same training and the same rule of choice."""

    def __init__(self, source: Source, shots: Shots, arguments: Arguments) -> None:
        self.source, self.shots, self.arguments = source, shots, arguments
        self.body = source.prior.without(HEAD)
        self.notes: dict[str, Any] = {}

    def isotropic(self) -> dict[str, Any]:
        """The paper's γ around the pre-trained weights, and γ tuned by validation."""
        begin = time.process_time()
        free = self._arrived(self._under(f"γ {FLOOR:g}", self._even(FLOOR)))
        published = self._tempered(free, {gamma: self._prior(self._even(gamma)) for gamma in PUBLISHED}, begin)
        begin = time.process_time()
        gamma, mode = self._strongest(TUNED, TUNED.index(100.0), lambda g: self._under(f"γ {g:g}", self._even(g)))
        tuned = self._tempered(mode, {gamma: self._prior(self._even(gamma))}, begin)
        return {"published": published, "tuned": tuned | {"edge": gamma in (TUNED[0], TUNED[-1])}}

    def learned(self) -> dict[str, Any]:
        """The curvature of ImageNet as the prior's precision, its share by validation."""
        begin = time.process_time()
        share, mode = self._strongest(SHARES, SHARES.index(0.1), lambda s: self._under(f"share {s:g}", self._curved(s)))
        return {"learned": self._tempered(mode, {share: self._prior(self._curved(share))}, begin)}

    def networks(self) -> dict[str, Any]:
        """Without any prior: one network, its dropout, an ensemble of several orders of the pictures."""
        begin = time.process_time()
        members = [self._arrived(self._started(f"network {k}", None, k)).model for k in range(MEMBERS)]
        dropped = self._arrived(self._started("dropout", None, dropout=DROPOUT)).model
        seconds = (time.process_time() - begin) / (MEMBERS + 1)
        return {
            "nn": self._answer(lambda x: _probs(members[0], x), seconds),
            "dropout": self._answer(lambda x: _dropped(dropped, x), seconds),
            "ensemble": self._answer(lambda x: torch.stack([_probs(m, x) for m in members]).mean(0), MEMBERS * seconds),
        }

    def _even(self, gamma: float) -> Mapping[str, Matrix]:
        return {name: scaled_identity(gamma, matrix.shape) for name, matrix in self.body.precision.items()}

    def _curved(self, share: float) -> Mapping[str, Matrix]:
        return self.body.adjusted(share, FLOOR).precision

    def _prior(self, below: Mapping[str, Matrix]) -> pt.Gaussian:
        """A precision below the head around the pre-trained weights; the new head has a prior of its own, the same for all."""
        head = torch.zeros(self.shots.classes, self.source.features + 1)
        own = scaled_identity(self.arguments["head"], (len(head), head.shape[1]))
        return pt.Gaussian(dict(self.body.mean) | {HEAD: head}, dict(below) | {HEAD: own})

    def _under(self, name: str, below: Mapping[str, Matrix]) -> Training:
        return self._started(name, self._prior(below))

    def _started(self, name: str, prior: pt.Gaussian | None, order: int = 0, dropout: float = 0.0) -> Training:
        """The first piece of a training, from the pre-trained stage and a head at zero."""
        model = self.source.network(self.shots.classes)
        if dropout:
            model.avgpool = nn.Sequential(model.avgpool, nn.Dropout(dropout))
        return self._trained(Training(name, model, prior, order))

    def _arrived(self, mode: Training) -> Training:
        """The same, trained on piece by piece until one of them gained next to nothing."""
        enough = FLAT * len(self.shots.train[1])
        while mode.gained > enough and mode.pieces < self.arguments["pieces"]:
            mode = self._trained(mode)
        self.notes[mode.name] |= {"pieces": mode.pieces}
        return mode

    def _trained(self, mode: Training) -> Training:
        """A piece more, by Adam in small batches: no validation picture takes part. Killed cells find finished pieces again."""

        def piece() -> Note:
            epochs = self.arguments["epochs"]
            history = train(
                mode.model, self.shots.train, mode.prior, validation=None, epochs=epochs, stop_after=epochs, halve_after=2,
                batch_size=self.arguments["batch"], start="model", prior_every=16, progress=False,
                optimiser=lambda p: torch.optim.Adam(p, self.arguments["lr"], fused=True),
                generator=torch.Generator().manual_seed(100 * mode.order + 10 * mode.pieces + self.arguments["seed"]),
            )  # fmt: skip
            return flatness(history, len(self.shots.train[1]))

        line = kept(self._file(mode), mode.model, piece)
        mode.model.eval()
        held = nll(_probs(mode.model, self.shots.held[0]), self.shots.held[1])
        first = self.notes.get(mode.name, line)["first"]
        self.notes[mode.name] = line | {"first": first, "held": float(f"{held:.5g}")}
        return replace(mode, pieces=mode.pieces + 1, held=held, gained=line["gained"])

    def _file(self, mode: Training) -> Path | None:
        if self.arguments["set"].startswith(MADE_UP):
            return None
        parts = [*identity(self.arguments, *AFTERWARDS), mode.name, str(mode.pieces)]
        return RUNS / "modes" / f"{fingerprint(parts, digits=16)}.safetensors"

    def _strongest(
        self, options: Sequence[float], first: int, mode: Callable[[float], Training]
    ) -> tuple[float, Training]:
        """The strength of least validation NLL after one piece, from neighbour to neighbour; its network trained to the end."""
        made: dict[int, Training] = {}

        def loss(k: int) -> float:
            made[k] = mode(options[k])
            return made[k].held

        k = descend(loss, first, 0, len(options) - 1)
        return options[k], self._arrived(made[k])

    def _tempered(self, mode: Training, priors: Mapping[float, pt.Gaussian], begin: float) -> dict[str, Any]:
        """Draws around the mode: the prior's strength where one mode serves several, then scales and temperature."""
        looks = self.arguments["looks"]
        there = Mode.of(mode.model, [*self.body.mean, HEAD], self.shots.train)
        made = {s: Posterior.at_mode(there, prior) for s, prior in priors.items()}
        plain = {s: chosen(posterior, self.shots.held, SCALES[:1], looks) for s, posterior in made.items()}
        strength = min(plain, key=lambda s: plain[s].held)
        scaled = chosen(made[strength], self.shots.held, SCALES[1:], looks)
        best = min((plain[strength], scaled), key=lambda choice: choice.held)
        answer = self._answer(lambda x: _drawn(made[strength], best, x, self.arguments["draws"]), 0.0)
        at_mode = self._answer(lambda x: _probs(mode.model, x), 0.0)
        picked = {"strength": strength, "scales": best.scales, "beta": float(f"{best.beta:.4g}"), "tau": best.tau}
        picked |= {"held": float(f"{best.held:.5g}"), "coldest": best.tau == TAUS[-1]}
        seconds = round(time.process_time() - begin, 1)
        values = {f"mode {name}": at_mode[name] for name in ("accuracy", "nll", "ece", "auroc")}
        return answer | values | picked | {"seconds": seconds}

    def _answer(self, probs: Callable[[Tensor], Tensor], seconds: float) -> dict[str, Any]:
        """All measures, from one pass over test pictures and unknown ones."""
        test, y = self.shots.test
        inside, outside = probs(torch.cat((test, self.shots.unknown))).split((len(test), len(self.shots.unknown)))
        return Answer.by_entropy(inside, outside, {}).values(y, seconds)


def _drawn(posterior: Posterior, choice: ModeChoice, x: Tensor, draws: int) -> Tensor:
    return posterior.predict(x, choice.beta, [choice.tau], draws)[choice.tau]


@torch.no_grad()
def _probs(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part).softmax(-1) for part in x.split(AT_ONCE)])


def _dropped(model: LastStage, x: Tensor) -> Tensor:
    """The mean over passes with dropout left on: the same draws whenever it is asked."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model.avgpool.train()
        found = torch.stack([_probs(model, x) for _ in range(PASSES)]).mean(0)
        model.avgpool.eval()
    return found
