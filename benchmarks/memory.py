"""The most memory that a posterior takes: all layers of ResNet-20 on 2,500 images, and a last layer with 1,000 classes.

    python -m benchmarks.memory

Each in a process of its own; what Python and torch take by themselves is counted too. Weights and images are random and
labels are the network's own answers.
"""

from __future__ import annotations

import multiprocessing
import time
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import nn

import posterity as pt
from benchmarks.latency import resnet20
from benchmarks.measure import Case, _peak, _reset_peak, write
from posterity.errors import TooLarge

GIB = 2**30


@dataclass(frozen=True)
class Peak:
    """One posterior's memory and time, or the refusal that came before either."""

    what: str
    peak_bytes: int
    seconds: float
    refused: str
    target_bytes: float

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this row from others of its file."""
        return (self.what,)


def all_layers(images: int) -> None:
    """A posterior over all layers of ResNet-20, and predictions for as many images as a batch holds."""
    model = resnet20().eval()
    with torch.no_grad():
        model.get_parameter("14.weight").mul_(20)  # as sure of its answers as a trained network
    x = torch.randn(images, 3, 32, 32)
    with torch.no_grad():
        y = torch.cat([model(some).argmax(1) for some in x.split(100)])
    pt.posterior(model, (x, y), progress=False).predict(x[:250])


def many_classes(rows: int) -> None:
    """A last layer with 1,000 classes on 384 features."""
    model = nn.Sequential(nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 1000))
    x = torch.randn(rows, 384)
    with torch.no_grad():
        y = model(x).argmax(1)
    pt.posterior(model, (x, y), blocks=["2"], progress=False)


JOBS = {
    "all layers of ResNet-20, {:,} images": (all_layers, 2500, 1.5 * GIB),
    "a last layer with 1,000 classes, {:,} rows": (many_classes, 2000, 1.0 * GIB),
}


def _run(what: str, count: int, sender: Connection) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    job, refused = JOBS[what][0], ""
    _reset_peak()
    began = time.process_time()
    try:
        job(count)
    except TooLarge as error:
        refused = str(error)
    sender.send((_peak(), time.process_time() - began, refused))


def measure(what: str, quick: bool) -> list[Peak]:
    """One posterior, in a fresh process."""
    _, count, target = JOBS[what]
    count = 20 if quick else count
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(what, count, sender))
    process.start()
    sender.close()
    peak, seconds, refused = receiver.recv()
    process.join()
    return [Peak(what.format(count), peak, seconds, refused, target)]


def cases(*, quick: bool = False) -> list[Case]:
    """Both."""
    return [Case(f"memory {what.format(0)}", lambda what=what: measure(what, quick)) for what in JOBS]  # type: ignore[misc]


if __name__ == "__main__":
    write([row for case in reversed(cases()) for row in case.measure()], Path("benchmarks/results/memory.jsonl"))
