"""Fits and estimators as files: good ones of several kinds, how they are changed, and how they are used."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from forging import changed_file
from torch import nn

import posterity as pt

QUICK = {"epochs": 1, "lr": 0.05, "batch_size": 16}


def data(n: int = 24, seed: int = 0, numbers: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator)
    return x, x[:, :1] + 0.1 * torch.randn(n, 1, generator=generator) if numbers else (x[:, 0] > 0).long()


def network(outputs: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


def change(folder: Path, chance: random.Random) -> None:
    """One file is changed, and the others are taken away."""
    path, *others = chance.sample(sorted(folder.iterdir()), len(list(folder.iterdir())))
    for other in others:
        other.unlink()
    path.write_bytes(changed_file(path.read_bytes(), chance))


def make_fits(folder: Path) -> None:
    options = {"training": QUICK, "progress": False}
    source = pt.learn(network(), data(), **options)
    source.save(folder / "from scratch 2.fit")
    pt.adapt(network(), data=data(6, 1), prior=source.posterior, progress=False).save(folder / "adapted 2.fit")
    numbers = data(20, 2, numbers=True)
    pt.learn(network(1), numbers, likelihood=pt.GaussianNoise(), **options).save(folder / "regression 1.fit")


def read_fits(folder: Path) -> None:
    for path in folder.glob("*.fit"):
        fit = pt.load(path, network(int(path.stem[-1])))
        fit.predict(data(4, 3)[0])
        repr(fit)


def make_estimators(folder: Path) -> None:
    options = {"hidden_sizes": (4,), "training": QUICK}
    x, y = (t.numpy() for t in data())
    pt.PosteriorClassifier(**options).fit(x, y).save(folder / "classes.fit")
    x, y = (t.numpy() for t in data(numbers=True))
    pt.PosteriorRegressor(**options).fit(x, y[:, 0]).save(folder / "numbers.fit")


def read_estimators(folder: Path) -> None:
    for path in folder.glob("*.fit"):
        kind = pt.PosteriorClassifier if path.stem == "classes" else pt.PosteriorRegressor
        kind.load(path).predict(data(4, 3)[0].numpy())
