"""The paper's search for scales of least bound: Adam over α, β, τ of every layer. One number does as well or better."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from posterity.laplace import Scales
from posterity.pacbayes import Landscape, TunedScales, catoni_best, mcallester

BoundName = Literal["catoni", "mcallester"]
ScaleName = Literal["alpha", "beta", "temperature"]
EVERY_SCALE: tuple[ScaleName, ...] = ("alpha", "beta", "temperature")


@dataclass(frozen=True)
class PerLayer:
    """The published search: Adam over the logarithms of α, β, τ of every block. `free` names those that may change.

    With `shared` all blocks have the same.
    """

    steps: int = 3000
    lr: float = 0.05
    free: tuple[ScaleName, ...] = EVERY_SCALE
    shared: bool = False

    def __post_init__(self) -> None:
        if not self.free or set(self.free) - set(EVERY_SCALE):
            raise ValueError(f"free scales are some of {EVERY_SCALE}, not {self.free}")


def per_layer(
    landscape: Landscape, bound: BoundName = "catoni", delta: float = 0.1, search: PerLayer | None = None
) -> TunedScales:
    """The published way, from a landscape. Never better than `one_number`."""
    search = search or PerLayer()
    names = list(landscape.spectra)
    logs = torch.zeros(1 if search.shared else len(names), 3, dtype=torch.float64, requires_grad=True)
    allowed = torch.tensor([float(name in search.free) for name in EVERY_SCALE], dtype=torch.float64)
    optimiser = torch.optim.Adam([logs], lr=search.lr)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.999999)
    objective = _smooth(bound)
    best, best_value = torch.zeros(len(names), 3, dtype=torch.float64), math.inf
    for _ in range(search.steps):
        every = (logs * allowed).expand(len(names), 3)
        aer, kl = _differentiable(landscape, every)
        loss = objective(aer, kl, landscape.count, delta)
        if loss.item() < best_value:
            best, best_value = every.detach().clone(), loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()
    alpha, beta, tau = (dict(zip(names, best[:, i].exp().tolist(), strict=True)) for i in range(3))
    scales = Scales(alpha, beta, tau, landscape.provenance)
    found_aer, found_kl = landscape.aer(scales), landscape.kl(scales)
    value = mcallester if bound == "mcallester" else lambda *given: catoni_best(*given)[0]
    return TunedScales(scales, value(found_aer, found_kl, landscape.count, delta), found_aer, found_kl)


def _differentiable(landscape: Landscape, logs: Tensor) -> tuple[Tensor, Tensor]:
    trace, kl = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for (name, values), (alpha, beta, tau) in zip(landscape.spectra.items(), logs.exp(), strict=True):
        combined = beta * values + alpha
        trace = trace + tau * (values / combined).sum()
        spread = tau * combined.reciprocal().sum() - values.numel() * (1 + tau.log()) + combined.log().sum()
        kl = kl + 0.5 * (spread + landscape.quadratics[name])
    return (landscape.nll + 0.5 * trace) / (landscape.count * math.log(2)), kl


def _smooth(name: BoundName) -> Callable[[Tensor, Tensor, int, float], Tensor]:
    """Objectives with the same gradient: Catoni at its present best c."""
    match name:
        case "mcallester":
            return lambda risk, kl, n, delta: risk + ((kl + math.log(2 * math.sqrt(n) / delta)) / (2 * n)).sqrt()
        case "catoni":

            def at_best_c(risk: Tensor, kl: Tensor, n: int, delta: float) -> Tensor:
                _, c = catoni_best(risk.item(), max(0.0, kl.item()), n, delta)
                return -torch.expm1(-c * risk - (kl - math.log(delta)) / n) / -math.expm1(-c)

            return at_best_c
    raise ValueError(f'per-layer tuning knows "catoni" and "mcallester", not "{name}"')
