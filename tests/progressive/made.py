"""Small tasks and networks, made up."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posterity import BPNN, Gaussian, Scales, Task, isotropic
from posterity.algebra import Kronecker
from posterity_studies.shared.continual import PNN

QUICK = {"epochs": 3, "lr": 1e-2, "batch_size": 32}


def network(seed: int = 0, classes: int = 3, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [
            nn.Linear(4, 8),
            nn.Tanh(),
            nn.Linear(8, 8),
            nn.Tanh(),
            nn.Linear(8, 8),
            nn.Tanh(),
            nn.Linear(8, classes),
        ]
        return nn.Sequential(*layers).to(dtype)


LATERALS, HEAD = ["2", "4"], "6"


def labelled(seed: int, n: int, rule: int, classes: int) -> tuple[Tensor, Tensor]:
    """Points by the nearest of some centres, which belong to the rule."""
    centres = torch.randn(classes, 4, generator=torch.Generator().manual_seed(rule))
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))
    return x, torch.cdist(x, centres).argmin(1)


def task(number: int, classes: int = 3, n: int = 64) -> Task:
    train, held, test = (labelled(10 * number + k, m, 1000 + number, classes) for k, m in enumerate((n, 32, 64)))
    return Task(f"task {number}", train, held, test, classes)


def learned_prior(model: nn.Module, seed: int = 0) -> Gaussian:
    """A prior as data would leave it: a Kronecker pair for each layer, around the model's weights."""
    flat = isotropic(model, 1.0, "model", vouched="drawn at random")
    dice = torch.Generator().manual_seed(seed)

    def factor(n: int) -> Tensor:
        half = torch.randn(n, 2 * n, generator=dice, dtype=torch.float64)
        return half @ half.T / (2 * n) + torch.eye(n, dtype=torch.float64)

    pairs = {n: Kronecker(factor(m.shape[0]), factor(m.shape[1])) for n, m in flat.precision.items()}
    return Gaussian(flat.mean, pairs, flat.card)


def bpnn(**options: object) -> BPNN:
    model = network()
    given = {"training": QUICK, "samples": 10, "scales": Scales()} | options
    return BPNN(model, learned_prior(model), LATERALS, HEAD, **given)  # type: ignore[arg-type]


def pnn(**options: object) -> PNN:
    return PNN(network(), LATERALS, HEAD, **({"training": QUICK} | options))  # type: ignore[arg-type]


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
