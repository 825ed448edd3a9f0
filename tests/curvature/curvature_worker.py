"""One of several gloo processes: estimates on its share and writes down what came out."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from curvature_cases import case, data
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

from posterity.curvature import (
    EKFAC,
    KFAC,
    KFOC,
    Categorical,
    Dense,
    Diagonal,
    ExactLabels,
    GaussianNoise,
    SampledLabels,
    estimate,
    partial,
)
from posterity.errors import BadData, NoData

ESTIMATORS = {
    "KFAC": KFAC(ExactLabels()),
    "KFAC reduce": KFAC(ExactLabels(), "reduce"),
    "EKFAC": EKFAC(ExactLabels()),
    "Diagonal": Diagonal(ExactLabels()),
    "Dense": Dense(ExactLabels()),
    "KFOC": KFOC(ExactLabels()),
}
CASES = {"conv": 3, "norms": 2, "shared": 7}
"""Networks and batch sizes for seven examples: three batches, four, and one (the second worker has none)."""


def forms(rank: int, size: int) -> dict[str, object]:
    """Data that is dealt out here, and data that its sampler has dealt out already."""
    x, y = data("mlp", n=8)
    whole = TensorDataset(x, y)
    sampler = DistributedSampler(whole, size, rank, shuffle=False)
    return {
        "tensors": (x, y),
        "loader": DataLoader(whole, batch_size=2),
        "list": [(x[:3], y[:3]), (x[3:], y[3:])],
        "sampler": DataLoader(whole, batch_size=2, sampler=sampler),
        "batch sampler": DataLoader(whole, batch_sampler=BatchSampler(sampler, 2, drop_last=False)),
    }


def dense(result) -> dict[str, torch.Tensor]:
    return {block: matrix.dense() for block, matrix in result.blocks.items()} | {
        "nll": torch.tensor(result.nll).double(),
        "count": torch.tensor(result.count),
    }


def everything(rank: int = 0, size: int = 1) -> dict[str, dict[str, torch.Tensor]]:
    found = {}
    for name, batch_size in CASES.items():
        for label, estimator in ESTIMATORS.items():
            result = estimate(case(name).model, data(name), estimator, batch_size=batch_size, progress=False)
            found[f"{name} {label}"] = dense(result)
    for form, given in forms(rank, size).items():
        found[f"form {form}"] = dense(
            estimate(case("mlp", n=8).model, given, KFAC(ExactLabels()), batch_size=2, progress=False)
        )
    # The same seed everywhere: labels of different workers must be independent all the same.
    x, _ = data("mlp", n=1)
    alike = (x.repeat(2, 1), torch.zeros(2, 3).double())
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        found[f"sampled {seed}"] = dense(
            estimate(
                case("mlp", n=1).model,
                alike,
                Dense(SampledLabels(1)),
                GaussianNoise(),
                batch_size=1,
                generator=generator,
                progress=False,
            )
        )
    return found


class CutError(Exception):
    """What stops an estimate on the way."""


def resumed(rank: int, folder: str) -> dict[str, torch.Tensor]:
    """An estimate that the second of two workers breaks off, taken up again by both."""
    x, y = data("conv", n=8)
    parts = [(x[i : i + 1], y[i : i + 1]) for i in range(8)]

    def until(stop):
        for number, part in enumerate(parts):
            if number == stop:
                raise CutError
            yield part

    partial.SECONDS, partial.RATIO = 0.0, 0
    options = {"checkpoint": f"{folder}/sums", "progress": False}
    with contextlib.suppress(CutError):
        # Both stop, one batch apart, before any of them meets the other.
        estimate(case("conv", n=8).model, until(4 + rank), KFAC(ExactLabels()), **options)
    kept = sorted(path.name for path in Path(folder).glob("sums*"))
    result = estimate(case("conv", n=8).model, parts, KFAC(ExactLabels()), **options)
    partial.SECONDS, partial.RATIO = 60.0, 20
    return dense(result) | {"kept": torch.tensor(len([name for name in kept if f"{rank + 1}-of-2" in name]))}


def refusals() -> list[str]:
    """Errors that every worker meets, by name."""
    x, y = data("mlp")
    named = []
    for given, estimator in (
        ((x[:0], y[:0]), KFAC()),
        ([(x[:0], y[:0])], KFAC()),
        (iter([(x, y)] * 2), EKFAC(ExactLabels())),
    ):
        try:
            estimate(case("mlp").model, given, estimator, Categorical(), progress=False)
        except (NoData, BadData) as error:
            named.append(type(error).__name__)
    return named


if __name__ == "__main__":
    rank, size, meeting, target = int(sys.argv[1]), 2, sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    found = everything(rank, size) | {"resumed": resumed(rank, str(Path(target).parent))}
    torch.save((found, refusals()), target)
    dist.barrier()
    dist.destroy_process_group()
