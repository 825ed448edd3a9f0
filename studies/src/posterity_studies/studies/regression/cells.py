"""One split of a UCI set: five predictives from the same training and validation data, scored in the target's own units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posterity.curvature import KFAC, ExactLabels, GaussianNoise, estimate
from posterity.laplace import isotropic, train, update
from posterity.predictive import predict
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets import uci

PRECISIONS = [0.1, 1.0, 10.0]
"""Prior precisions to try, beside a summed loss with noise of precision 20."""
NOISES = [0.25, 0.5, 1.0, 2.0, 4.0]
"""Noise precisions to try, times one over the validation error's square. As many for every method."""
MEMBERS, DROPOUT = 5, 0.05


@dataclass(frozen=True)
class Normal:
    """A predictive's mean and the variance that weights leave open, before noise."""

    mean: Tensor
    variance: Tensor


def network(inputs: int, dropout: float, seed: int) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(inputs, 50), nn.ReLU(), nn.Dropout(dropout), nn.Linear(50, 1))


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Test NLL (mean nats) and RMSE by method."""
    data = uci(arguments["data"], arguments["split"])
    x, y = data.train
    order = torch.randperm(len(x), generator=generator)
    held, kept = order[: len(x) // 10], order[len(x) // 10 :]
    fit, check = (x[kept], y[kept]), (x[held], y[held])

    def trained(precision: float, dropout: float, seed: int) -> nn.Sequential:
        model = network(x.shape[1], dropout, seed)
        options: dict[str, Any] = {"epochs": arguments["epochs"], "batch_size": 64, "lr": 1e-2, "progress": False}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            # The prior leaves the noise of dropout alone: the modes differ by their prior, not by their budget.
            train(
                model, fit, isotropic(model, precision), GaussianNoise(20.0), validation=check,
                generator=torch.Generator().manual_seed(seed), **options,
            )  # fmt: skip
        return model.eval()

    def best(dropout: float) -> tuple[float, nn.Sequential]:
        tried = {p: trained(p, dropout, arguments["split"]) for p in PRECISIONS}
        chosen = min(tried, key=lambda p: _mse(_outputs(tried[p], check[0]), check[1]))
        return chosen, tried[chosen]

    precision, model = best(0.0)
    members = [model, *(trained(precision, 0.0, 1000 * m + arguments["split"]) for m in range(1, MEMBERS))]
    _, dropped = best(DROPOUT)
    values: dict[str, Any] = {"precision": precision}
    for name in ("map", "linearised", "sampled", "dropout", "ensemble"):
        trials = []
        for factor in NOISES:
            noise = factor / _mse(_outputs(model, check[0]), check[1])

            def predictive(z: Tensor, name: str = name, noise: float = noise) -> Normal:
                match name:
                    case "map":
                        return Normal(_outputs(model, z), torch.zeros(len(z), 1))
                    case "dropout":
                        return _spread(_dropped(dropped, z))
                    case "ensemble":
                        return _spread(torch.stack([_outputs(m, z) for m in members]))
                return laplace(model, fit, z, precision, noise, name, generator)

            trials.append((_nll(predictive(check[0]), check[1], noise), noise, predictive))
        _, noise, predictive = min(trials, key=lambda trial: trial[0])
        found = predictive(data.test[0])
        values[f"{name} nll"] = round(_nll(found, data.test[1], noise) + math.log(data.scale), 5)
        values[f"{name} rmse"] = round(math.sqrt(_mse(found.mean, data.test[1])) * data.scale, 5)
    return values


def laplace(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    x: Tensor,
    precision: float,
    noise: float,
    method: str,
    generator: torch.Generator,
) -> Normal:
    """The posterior at the mode with this noise, by the linearised network or by draws."""
    likelihood = GaussianNoise(noise)
    curvature = estimate(model, data, KFAC(ExactLabels()), likelihood, generator=generator, progress=False)
    # The mode was found with noise of precision 20: the same ratio of prior to data holds it there.
    posterior = update(model, curvature, isotropic(model, precision * noise / 20.0), join="sum")
    found = predict(model, posterior, x, likelihood, method=method, samples=100, generator=generator)  # type: ignore[arg-type]
    return Normal(found.mean, found.epistemic)


@torch.no_grad()
def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    outputs: Tensor = model(x)
    return outputs


@torch.no_grad()
def _dropped(model: nn.Module, x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.train()
        draws = torch.stack([model(x) for _ in range(100)])
        model.eval()
    return draws


def _spread(draws: Tensor) -> Normal:
    return Normal(draws.mean(0), draws.var(0, correction=0))


def _mse(outputs: Tensor, y: Tensor) -> float:
    return max(1e-6, float((outputs - y).square().mean()))


def _nll(found: Normal, y: Tensor, noise: float) -> float:
    variance = found.variance + 1 / noise
    return float((0.5 * ((found.mean - y).square() / variance + (2 * math.pi * variance).log())).mean())
