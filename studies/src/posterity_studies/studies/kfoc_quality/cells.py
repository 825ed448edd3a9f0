"""Curvatures of a small network beside its Fisher information, written out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posterity.curvature import EKFAC, KFAC, KFOC, Dense, ExactLabels, estimate
from posterity.laplace import isotropic, train
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets.digits import sklearn_datasets

BLOCKS = {"0": "conv 6×10", "3": "conv 12×55", "6": "linear 32×49", "8": "linear 10×33"}


def digits() -> tuple[Tensor, Tensor]:
    """The 1,797 8×8 digits that scikit-learn carries."""
    raw = sklearn_datasets().load_digits()
    return torch.tensor(raw.images, dtype=torch.float64)[:, None] / 16, torch.tensor(raw.target).long()


def network() -> nn.Sequential:
    """Small enough that the Fisher information of each block can be written out."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 12, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    ).double()


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Relative Frobenius errors per block at a network trained on a seed's own split."""
    seed, batch, examples = arguments["seed"], arguments["batch"], arguments["examples"]
    draw = torch.Generator().manual_seed(seed)
    x, y = digits()
    order = torch.randperm(len(x), generator=draw)[:examples]
    data = (x[order], y[order])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = network()
    train(model, data, isotropic(model, 0.1), epochs=30, batch_size=64, lr=3e-3, generator=draw, progress=False)

    def curvature(estimator: Dense | KFAC | KFOC | EKFAC) -> dict[str, Tensor]:
        found = estimate(model, data, estimator, batch_size=batch, generator=draw, progress=False)
        return {name: found[name].dense() for name in BLOCKS}

    exact = ExactLabels()
    truth = curvature(Dense(labels=exact))
    result: dict[str, float] = {}
    for method, estimator in (("kfac", KFAC(exact)), ("kfoc", KFOC(exact)), ("ekfac", EKFAC(exact))):
        for name, matrix in curvature(estimator).items():
            error = torch.linalg.norm(matrix - truth[name]) / torch.linalg.norm(truth[name])
            result[f"{method} {name}"] = float(f"{float(error):.6g}")
    return result
