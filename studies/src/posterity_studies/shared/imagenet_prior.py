"""The prior that ImageNet leaves behind: a ResNet-50, some of its pictures, one file.

    torchrun --nproc-per-node 2 -m posterity_studies.shared.imagenet_prior imagenet.safetensors

Every process takes every other batch, and keeps its sums beside the file: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Annotated

import torch
import torch.distributed as dist
import typer

import posterity as pt
from posterity.curvature import Estimator
from posterity_studies.shared.datasets import imagenet_samples
from posterity_studies.shared.imagenet import POPULATION
from posterity_studies.shared.resnet import imagenet_resnet50, normalised

ESTIMATORS: dict[str, Estimator] = {"kfac": pt.KFAC(), "kfoc": pt.KFOC()}


def learn(path: Path, count: int, size: int, estimator: str, batch_size: int, floor: float = 1.0) -> pt.Gaussian:
    """The prior of the first pictures, made by all processes together and written by the first.

    Args:
        path: where the file is to be; sums are kept beside it on the way.
        count: pictures of ImageNet, one a class; the curvature is scaled up to all that the network was trained on.
        size: pixels a side.
        estimator: "kfac" or "kfoc".
        batch_size: pictures at a time.
        floor: the precision of directions without curvature.
    Returns:
        The prior, in every process.
    """
    pictures = normalised(imagenet_samples().decoded(range(count), size)[0])
    prior = pt.prior(
        imagenet_resnet50(),
        pictures,
        floor=floor,
        population=POPULATION,
        estimator=ESTIMATORS[estimator],
        batch_size=batch_size,
        text=f"ResNet-50 (v1) on ImageNet; curvature of {count} pictures, one a class, at {size} px.",
        generator=torch.Generator().manual_seed(0),
        checkpoint=path.with_suffix(".partial"),
    )
    if not dist.is_initialized() or dist.get_rank() == 0:
        prior.save(path)
    return prior


def main(
    path: Annotated[Path, typer.Argument(help="The file to write.", dir_okay=False)],
    count: Annotated[int, typer.Option(min=1, max=1000, help="Pictures.")] = 1000,
    size: Annotated[int, typer.Option(min=32, help="Pixels a side.")] = 224,
    estimator: Annotated[str, typer.Option(help="kfac or kfoc.")] = "kfac",
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 8,
) -> None:
    """Make the prior of ImageNet and say what it took."""
    if estimator not in ESTIMATORS:
        raise typer.BadParameter(f"{estimator!r} is none of {', '.join(ESTIMATORS)}")
    torch.set_num_threads(1)
    several = "RANK" in os.environ
    if several:
        dist.init_process_group("gloo")
    try:
        learn(path, count, size, estimator, batch_size)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{time.process_time():.2f} CPU seconds and {peak:.2f} GiB in this process, start-up included", flush=True
        )
    finally:
        if several:
            dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
