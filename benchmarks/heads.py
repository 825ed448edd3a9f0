"""What heads on features cost, and photographs on the command line.

    python -m benchmarks.heads
    python -m benchmarks.heads photographs      # UC Merced in the data root, by three commands

Random features, CPU time on one thread, each case in a process of its own; memory is the peak less what was taken before.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import posterity as pt
from benchmarks.measure import write

RESULTS = Path("benchmarks/results/heads.jsonl")
ENCODER = "posterity_studies.shared.imagenet:encoder"
PER_CLASS, PIXELS = 10, 128


@dataclass(frozen=True)
class Cost:
    """One job."""

    job: str
    cpu_seconds: float
    megabytes: float | None = None
    accuracy: float | None = None
    detail: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this row from others of its file."""
        return (self.job,)


def examples(count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of 384 numbers around the centres of classes."""
    torch.manual_seed(0)
    y = torch.arange(count) % classes
    return torch.randn(classes, 384)[y] + torch.randn(count, 384), y


def fit_of(count: int, classes: int) -> Cost:
    x, y = examples(count, classes)
    return _timed(f"fit {count:,} rows, {classes:,} classes", lambda: pt.head(x, y))


def ask_of(candidates: int, folder: Path) -> Cost:
    """Ten of so many candidates, in a memory map, after a hundred labels of ten classes."""
    fit = pt.head(*examples(100, 10))
    pool = np.lib.format.open_memmap(folder / "pool.npy", "w+", np.float32, (candidates, 384))
    for start in range(0, candidates, 10_000):
        pool[start : start + 10_000] = np.random.default_rng(start).normal(size=pool[start : start + 10_000].shape)
    pool.flush()
    mapped = np.load(folder / "pool.npy", mmap_mode="r")
    return _timed(f"ask for 10 of {candidates:,}", lambda: fit.ask(mapped, 10))


def _timed(job: str, run) -> Cost:  # type: ignore[no-untyped-def]
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    run()
    seconds = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Cost(job, round(seconds, 2), round((after - before) / 1024))


def photographs(folder: Path) -> Cost:
    """Ten photographs a class of UC Merced's 21, through ResNet-50's ImageNet weights, tested on the others."""
    from posterity_studies.shared.datasets import gallery

    found = gallery("ucmerced")
    for i, place in enumerate(found.places.tolist()):
        where = folder / "ucmerced" / found.classes[int(found.labels[i])]
        where.mkdir(parents=True, exist_ok=True)
        (where / f"{place:04}.jpg").write_bytes(bytes(found.encoded(place)))
    commands = [
        f"data split ucmerced few rest --per-class {PER_CLASS}",
        f"learn few --encoder {ENCODER} --size {PIXELS} --out ucmerced.fit",
        f"evaluate ucmerced.fit rest --encoder {ENCODER} --out ucmerced.json",
    ]
    for command in commands:
        subprocess.run(
            [sys.executable, "-c", "from posterity.cli import app; app()", *command.split()], cwd=folder, check=True
        )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured = json.loads((folder / "ucmerced.json").read_text())
    return Cost(
        "photographs on the command line",
        round(used.ru_utime + used.ru_stime, 1),
        accuracy=round(measured["accuracy"], 4),
        detail=f"{measured['count']} tested, NLL {measured['nll']:.3f}: posterity {'; posterity '.join(commands)}",
    )


def main(case: str | None) -> None:
    torch.set_num_threads(1)
    jobs = {
        "fit": lambda _: fit_of(100, 10),
        "thousand": lambda _: fit_of(2000, 1000),
        "ask": lambda folder: ask_of(10_000, folder),
        "pool": lambda folder: ask_of(200_000, folder),
        "photographs": photographs,
    }
    if case is None:
        for name in jobs:
            if name != "photographs":
                subprocess.run([sys.executable, "-m", "benchmarks.heads", name], check=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        result = jobs[case](Path(folder))
    print(result)
    write([result], RESULTS, keep_others=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
