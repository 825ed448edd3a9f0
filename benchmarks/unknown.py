"""What the score of unknown inputs costs: predictions of a thousand inputs with it and without, every kind of fit.

    python -m benchmarks.unknown

CPU time on one thread, the least of several calls that take turns; weights, images and labels are random. As many known inputs
as a fit keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import process_time

import torch

import posterity as pt
from benchmarks.latency import resnet20
from benchmarks.measure import Case, write
from posterity.lenet import lenet5
from posterity.predictive.head import HeadPredictor

TARGET = 1.3
INPUTS = 1000
SHAPES = {"features": (512,), "lenet5": (1, 28, 28), "resnet20": (3, 32, 32)}


@dataclass(frozen=True)
class ScoreCost:
    """A prediction with the score beside the same one without it."""

    network: str
    fit: str
    known: int
    milliseconds: float
    without_milliseconds: float
    times: float
    target: float

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this row from others of its file."""
        return self.network, self.fit


def fits(name: str, quick: bool) -> dict[str, pt.Fit]:
    """Every kind of fit whose predictions run the network, and a head on features."""
    torch.manual_seed(0)
    count = 60 if quick else 600
    if name == "features":
        return {"head": pt.head(torch.randn(count, 512), torch.arange(count) % 10)}
    model = lenet5() if name == "lenet5" else resnet20()
    y = torch.arange(count) % 10
    data = torch.randn(10, *SHAPES[name])[y] + torch.randn(count, *SHAPES[name]), y
    pt.train(model, data, pt.isotropic(model), epochs=5, progress=False)
    head = [key for key, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)][-1]
    whole = pt.posterior(model.eval(), data, progress=False)
    found = {"last layer": pt.posterior(model, data, blocks=[head], progress=False), "structured": whole}
    if name == "lenet5":
        few = data[0][:100], data[1][:100]
        found["adapted"] = pt.adapt(lenet5(), few, whole.posterior, head="keep", progress=False)
        found["networks"] = pt.learn(lenet5(), few, training={"epochs": 1}, progress=False)
    return found


def measure(name: str, quick: bool) -> list[ScoreCost]:
    """All fits of one network."""
    new, rows = torch.randn(20 if quick else INPUTS, *SHAPES[name]), []
    for kind, fit in fits(name, quick).items():
        reference, bare = fit.reference, replace(fit, reference=None)
        if isinstance(fit.predictor, HeadPredictor):
            reference = fit.predictor.reference
            bare = replace(fit, predictor=fit.predictor.without_examples()[0])
        calls = partial(fit.predict, new), partial(bare.predict, new)
        took, without = _least(*calls, 2 if quick else 7)
        known = 0 if reference is None else len(next(iter(reference.rows.values())))
        rows.append(ScoreCost(name, kind, known, took, without, took / without, TARGET))
    return rows


def _least(first: Callable[[], object], second: Callable[[], object], calls: int) -> tuple[float, float]:
    """Milliseconds of each, taking turns."""
    found = []
    for _ in range(calls):
        for call in (first, second):
            start = process_time()
            call()
            found.append(1e3 * (process_time() - start))
    return min(found[::2]), min(found[1::2])


def cases(*, quick: bool = False) -> list[Case]:
    """A case for each network."""
    return [Case(f"unknown {n}", lambda n=n: measure(n, quick)) for n in SHAPES]  # type: ignore[misc]


if __name__ == "__main__":
    torch.set_num_threads(1)
    write([row for case in cases() for row in case.measure()], Path("benchmarks/results/unknown.jsonl"))
