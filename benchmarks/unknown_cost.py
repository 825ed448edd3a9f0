"""What the score for unknown inputs costs: each kind of fit with it and without it, in the same run.

    python -m benchmarks.unknown_cost

CPU time on one thread, the least of several calls in turn; weights, images and labels are random, with 200 known inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import posterity as pt
from benchmarks.latency import least, resnet20
from benchmarks.measure import Case, write
from posterity.kernel import Calibration
from posterity.lenet import lenet5
from posterity.predictive.exact import AveragedNetworks

TARGET, NETWORKS, KNOWN = 1.3, 6, 200


@dataclass(frozen=True)
class UnknownCost:
    """Milliseconds of a prediction with `.unknown` and without it."""

    network: str
    predictor: str
    inputs: int
    milliseconds: float
    without: float
    ratio: float
    target: float = TARGET

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this row from others of its file."""
        return self.network, self.predictor, str(self.inputs)


def fits(name: str) -> Iterator[tuple[str, pt.Fit]]:
    """A last layer, averaged networks with the same reference, and the exact posterior of a hundred examples."""
    torch.manual_seed(0)
    model, shape = (lenet5(), (1, 28, 28)) if name == "lenet5" else (resnet20(), (3, 32, 32))
    x, y = torch.randn(KNOWN, *shape), torch.randint(10, (KNOWN,))
    head = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)][-1]
    last = pt.posterior(model.eval(), (x, y), blocks=[head], progress=False)
    yield "last layer", last
    shares = tuple((1 / NETWORKS, pt.isotropic(model, 1.0, mean="model").mean) for _ in range(NETWORKS))
    yield "averaged networks", replace(last, predictor=AveragedNetworks(shares, Calibration(), last.likelihood))
    if name == "lenet5":
        curvature = pt.estimate(model, (x, y), pt.EKFAC(), progress=False)
        gaussian = pt.update(model, curvature, pt.isotropic(model, 1.0, mean="model"))
        yield "exact, all layers", pt.adapt(lenet5(), (x[:100], y[:100]), gaussian, head="new", progress=False)


def measure(name: str, quick: bool) -> list[UnknownCost]:
    """All kinds of fits of one network, for one input and for a batch."""
    rows = []
    for kind, fit in fits(name):
        bare = replace(fit, reference=None)
        for count in (1,) if quick else (1, 100):
            new = torch.randn(count, 1, 28, 28) if name == "lenet5" else torch.randn(count, 3, 32, 32)
            calls = 2 if quick else (20 if count == 1 else 4)
            took, without = (least(lambda f=f, new=new: f.predict(new), calls) for f in (fit, bare))  # type: ignore[misc]
            rows.append(UnknownCost(name, kind, count, took, without, took / without))
    return rows


def cases(*, quick: bool = False) -> list[Case]:
    """A case for each network."""
    return [Case(f"unknown cost {n}", lambda n=n: measure(n, quick)) for n in ("lenet5", "resnet20")]  # type: ignore[misc]


if __name__ == "__main__":
    torch.set_num_threads(1)
    write([row for case in cases() for row in case.measure()], Path("benchmarks/results/unknown_cost.jsonl"))
