"""What posterity writes, over and over: for a process to be killed, or to run out of disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import posterity as pt

EPOCHS = 40


def data(n: int = 200, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 8, generator=generator), torch.randint(2, (n,), generator=generator)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 2))


def train(folder: Path, rounds: int) -> Any:
    """A training run that goes on where the last one stopped."""
    model = network()
    options = {"epochs": EPOCHS, "lr": 0.01, "batch_size": 16, "stop_after": EPOCHS, "progress": False}
    dice = torch.Generator().manual_seed(0)
    history = pt.train(model, data(), checkpoint=folder / "run.pt", generator=dice, **options)
    return history, model


def save(folder: Path, rounds: int) -> None:
    """One of two priors at a time, in the same file."""
    priors = [pt.isotropic(network(), float(k + 1)) for k in range(2)]
    for k in range(rounds):
        priors[k % 2].save(folder / "prior.safetensors")
        (folder / "saved").write_text(str(k))


def learner(folder: Path, rounds: int) -> None:
    """A learner that grows by a column a round, as far as it has not been saved."""
    training = {"epochs": 1, "lr": 0.05, "batch_size": 64}
    options: dict[str, Any] = {"training": training, "scales": pt.Scales()}
    if (folder / "learner" / "learner.json").exists():
        found = pt.BPNN.load(folder / "learner", network())
    else:
        found = pt.BPNN(network(), pt.isotropic(network()), ["0"], "2", **options)
    for k in range(len(found.tasks), rounds):
        found.learn(pt.Task(f"task {k}", data(40, k), None, None, 2), progress=False)
        found.save(folder / "learner")


def study(folder: Path, rounds: int) -> None:
    """Cells that are not in the results file yet."""
    from posterity_studies.engine.declaration import Record
    from posterity_studies.engine.ledger import Ledger

    book = Ledger(folder / "toy.jsonl")
    with book.writing():
        for k in range(rounds):
            if f"key {k}" not in book.records:
                values = {"value": k, "text": "x" * 2000}
                book.append(Record("toy", f"key {k}", {"seed": k}, values, 1.0, {"torch": "2"}))


KINDS = {"train": train, "save": save, "learner": learner, "study": study}
