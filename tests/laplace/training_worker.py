"""Training as other processes do it: one that will be killed, or one of two that share the work."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import posterity as pt
from posterity.laplace.run import Objective, map_objective

EPOCHS = 25


def task(n: int = 50, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=dtype)
    noise = 0.5 * torch.randn(n, 3, generator=generator, dtype=dtype)
    return x, (x @ torch.randn(4, 3, generator=generator, dtype=dtype) + noise).argmax(-1)


def network(seed: int = 0, norm: bool = False, dropout: bool = False) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        middle = [nn.BatchNorm1d(8)] if norm else []
        return nn.Sequential(
            nn.Linear(4, 8), *middle, nn.Tanh(), nn.Dropout(0.3 if dropout else 0.0), nn.Linear(8, 3)
        ).double()


def unhurried(nll: torch.Tensor, half: torch.Tensor, count: int) -> torch.Tensor:
    """The usual objective, at a pace that leaves time to be killed."""
    time.sleep(0.01)
    return map_objective(nll, half, count)


def interruptible(
    checkpoint: Path | None, epochs: int = EPOCHS, seed: int = 3, objective: Objective = map_objective
) -> tuple[nn.Module, pt.laplace.History]:
    """With norms, dropout, a prior and a share held out: everything whose state must outlive the process."""
    torch.manual_seed(seed)
    model = network(norm=True, dropout=True)
    history = pt.train(
        model,
        task(),
        pt.isotropic(model, 0.5),
        epochs=epochs,
        batch_size=8,
        lr=1e-2,
        halve_after=2,
        stop_after=EPOCHS,
        objective=objective,
        checkpoint=checkpoint,
        progress=False,
    )
    return model, history


def runs(rank: int = 0, size: int = 1) -> dict[str, tuple[dict[str, torch.Tensor], list[list[float]]]]:
    """Trainings whose result must not depend on how many processes share them."""
    found = {}
    x, y = task()
    whole = TensorDataset(x, y)
    loaders = {
        "tensors": (x, y),
        "dataset": whole,
        "loader": DataLoader(whole, batch_size=10),
        "dealt": DataLoader(whole, batch_size=10 // size, sampler=DistributedSampler(whole, size, rank, shuffle=False)),
    }

    def root(nll: torch.Tensor, half: torch.Tensor, count: int) -> torch.Tensor:
        return nll + (half / count + 0.1).sqrt()

    options = {
        "tensors": {"validation": None, "clip": 0.5},
        "dataset": {"validation": 0.2},
        "loader": {"validation": (x[:7], y[:7]), "objective": root},
        "dealt": {"validation": None},
    }
    for form, data in loaders.items():
        # Workers start from weights of their own: the first one's count.
        model = network(seed=rank)
        history = pt.train(
            model,
            data,
            pt.isotropic(network(), 2.0),
            epochs=4,
            batch_size=11,
            lr=1e-2,
            generator=torch.Generator().manual_seed(rank),
            progress=False,
            **options[form],
        )
        lines = [[e.objective, e.nll, e.accuracy, e.lr] for e in history.epochs]
        found[form] = ({k: v.clone() for k, v in model.state_dict().items()}, lines)
    normed = network(norm=True)
    pt.train(normed, (x[:48], y[:48]), epochs=3, batch_size=12, validation=(x[48:], y[48:]), progress=False,
             generator=torch.Generator().manual_seed(0))  # fmt: skip
    found["norm"] = (dict(normed.state_dict()), [])
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "alone":
        interruptible(Path(sys.argv[2]), objective=unhurried)
    else:
        rank, meeting, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
        torch.save(runs(rank, 2), target)
        dist.barrier()
        dist.destroy_process_group()
