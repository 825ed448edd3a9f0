"""Predictives on LeNet-5: a hundred draws beside a hundred plain forwards, and the linearised one beside laplace-torch's."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

import posterity
from benchmarks.measure import Case, Jobs, Row, measured
from benchmarks.networks import LENET5, Workload
from benchmarks.peers import _Batches, _imported, _private_copy, quiet
from posterity import KFAC, Gaussian

NAME = "posterity"
PEER = "laplace-torch (curvlinops)"
Work = Literal["sampled", "sampled-small-batches", "linearised"]

DRAWS = 100
IMAGES = replace(LENET5, examples=1000, batch=1000)
"""One batch for the plain forwards, as `model(x)` has it."""

CACHED = 250
"""Images a batch, few enough for a processor's cache: plain forwards too are faster so."""

PEER_IMAGES = 50
"""laplace-torch needs gigabytes for a thousand: it is timed on fewer and its time is scaled, which is linear in images."""

PRIOR_PRECISION = 1.0
MEMORY_TARGET = 300 * 10**6


def plain_forwards(model: nn.Module, x: Tensor, batch: int) -> None:
    """As many forwards over all images as there are draws: the unit in which a sampled predictive is given."""
    with torch.no_grad():
        for _ in range(DRAWS):
            for images in x.split(batch):
                model(images)


def posterior(model: nn.Module, x: Tensor, y: Tensor) -> Gaussian:
    """KFAC's, as laplace-torch has it."""
    curvature = posterity.estimate(model, (x, y), KFAC(), batch_size=256, progress=False)
    return posterity.update(model, curvature, posterity.isotropic(model, PRIOR_PRECISION, mean="model"))


@dataclass(frozen=True)
class Line:
    """One line of the table: who predicts how, beside what. `peak_bytes` is what it takes beyond the plain forwards."""

    name: str
    work: Work
    load: Workload
    repeats: int
    target_ratio: float | None = None
    target_bytes: int | None = None
    detail: str = ""

    def measure(self) -> list[Row]:
        """The row of this line, with the reason in it where nothing could be measured."""
        row = Row(
            self.name,
            self.work,
            self.load.network,
            self.load.examples,
            self.load.batch,
            detail=self.detail,
            target_ratio=self.target_ratio,
            target_bytes=self.target_bytes,
        )
        setup = partial(jobs, self.name, self.work, self.load)
        row = measured(row, setup, repeats=self.repeats, cpu_limit=900)
        if row.peak_bytes is None or row.reference_peak_bytes is None:
            return [row]
        # torch alone fills hundreds of megabytes: what counts is what a prediction adds to a plain forward's.
        return [replace(row, peak_bytes=row.peak_bytes - row.reference_peak_bytes)]


def jobs(name: str, work: Work, load: Workload) -> Jobs:
    """A predictive beside its reference, by name so that a process can be sent for it.

    The sampled one stands beside plain forwards. Ours linearised, on all images, stands beside laplace-torch's on a few.
    """
    model, x, y = load.make()
    ours = posterior(model, x, y)
    if work != "linearised":
        return Jobs(
            lambda: plain_forwards(model, x, load.batch),
            lambda: posterity.predict(model, ours, x, method="sampled", samples=DRAWS),
            lambda: posterity.predict(model, ours, x, method="sampled", samples=2),
        )
    if name == NAME:
        return Jobs(
            lambda: plain_forwards(model, x, load.batch),
            lambda: posterity.predict(model, ours, x, method="linearised"),
            lambda: posterity.predict(model, ours, x[:10], method="linearised"),
        )
    theirs = _fitted_peer(model, x, y)

    def peer() -> None:
        with quiet():
            theirs(x, pred_type="glm", link_approx="probit")

    return Jobs(lambda: plain_forwards(model, x, load.batch), peer, lambda: theirs(x[:2], pred_type="glm"))


def _fitted_peer(model: nn.Module, x: Tensor, y: Tensor) -> Any:
    laplace, curvature = _imported("laplace"), _imported("laplace.curvature")
    fitted = laplace.KronLaplace(
        _private_copy(model),
        "classification",
        prior_precision=PRIOR_PRECISION,
        backend=curvature.CurvlinopsGGN,
        backend_kwargs={"stochastic": True},
    )
    with quiet():
        fitted.fit(_Batches(x, y, 256))
    return fitted


def cases(*, quick: bool = False) -> list[Case]:
    """All lines of the table, in their order."""
    small = replace(IMAGES, examples=20, batch=20) if quick else IMAGES
    cached = replace(small, batch=min(CACHED, small.batch))
    few = replace(IMAGES, examples=5 if quick else PEER_IMAGES, batch=PEER_IMAGES)
    repeats = 1 if quick else 3
    lines = [
        Line(NAME, "sampled", small, repeats, target_ratio=1.0, detail="the plain forwards in one batch"),
        Line(
            NAME, "sampled-small-batches", cached, repeats, target_ratio=1.1, detail=f"all in batches of {cached.batch}"
        ),
        Line(NAME, "linearised", small, repeats, target_bytes=MEMORY_TARGET, detail="beside as many plain forwards"),
        Line(PEER, "linearised", few, 1, detail=f"{few.examples} images; time is linear in them"),
    ]
    return [Case(f"predictive {line.work} {line.name}", line.measure) for line in lines]


def rows(quick: bool = False) -> list[Row]:
    """All rows, measured now."""
    return [row for case in cases(quick=quick) for row in case.measure() if isinstance(row, Row)]
