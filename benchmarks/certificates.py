"""What certificates cost on LeNet-5: draws of the weights beside plain forwards, and scales beside the published search."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

import posterity
from benchmarks.measure import Case, Jobs, Row, measured
from benchmarks.networks import LENET5, Workload
from posterity import KFAC, KFOC
from posterity.pacbayes import Landscape, gibbs_risk, tune
from posterity_studies.shared.per_layer import PerLayer, per_layer

NAME = "posterity"
PASSES = 10
Work = Literal["replicates", "tune", "tune-per-layer"]

FORWARDS_TARGET = 15.0
"""Plain passes over the data that ten independent draws of the weights for every example may cost."""

SECONDS_TARGET = 0.2
"""What tuning may take, eigendecompositions included."""

STEPS = 3000


def plain_forward(model: nn.Module, x: Tensor, batch: int) -> None:
    """One pass over all images: the unit in which replicates are counted."""
    with torch.no_grad():
        for images in x.split(batch):
            model(images)


def jobs(work: Work, load: Workload, steps: int) -> Jobs:
    """A part of certifying beside its reference, by name so that a process can be sent for it."""
    model, x, y = load.make()
    curvature = posterity.estimate(model, (x, y), KFAC(), batch_size=256, progress=False)
    source = posterity.update(model, curvature, posterity.isotropic(model, 1.0, mean="model"))
    if work == "replicates":
        return Jobs(
            lambda: plain_forward(model, x, load.batch),
            lambda: gibbs_risk(model, source, (x, y), passes=PASSES, progress=False),
            lambda: gibbs_risk(model, source, (x[:256], y[:256]), passes=PASSES, progress=False),
        )
    prior = source.compress()
    target = posterity.estimate(model, (x, y), KFOC(), batch_size=256, progress=False)

    def tuned(search: PerLayer) -> Callable[[], object]:
        if work == "tune-per-layer":
            return lambda: per_layer(Landscape.of(prior, model, target), search=search)
        return lambda: tune(model, target, prior, "catoni")

    return Jobs(lambda: plain_forward(model, x, load.batch), tuned(PerLayer(steps=steps)), tuned(PerLayer(steps=2)))


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    work: Work
    load: Workload
    repeats: int
    steps: int = STEPS
    target: float | None = None
    detail: str = ""

    def measure(self) -> list[Row]:
        """The row of this line, with the reason in it where nothing could be measured."""
        row = Row(
            NAME,
            self.work,
            self.load.network,
            self.load.examples,
            self.load.batch,
            detail=self.detail,
            target_ratio=self.target,
        )
        setup = partial(jobs, self.work, self.load, self.steps)
        return [measured(row, setup, repeats=self.repeats, cpu_limit=900)]


def cases(*, quick: bool = False) -> list[Case]:
    """All lines of the table."""
    load = replace(LENET5, examples=256 if quick else 5120)
    steps = 10 if quick else STEPS
    lines = [
        Line("replicates", load, 1 if quick else 3, target=FORWARDS_TARGET, detail=f"{PASSES} draws for each example"),
        Line("tune", load, 1 if quick else 3, detail="one number, eigendecompositions included"),
        Line("tune-per-layer", load, 1, steps, detail=f"{steps:,} steps of Adam, the same included"),
    ]
    return [Case(f"certificates {line.work}", line.measure) for line in lines]
