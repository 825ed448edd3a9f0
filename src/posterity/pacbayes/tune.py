"""Scales of least bound. The optimum over all covariances is one number; the paper's per-layer search is kept beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from posterity.curvature import Curvature
from posterity.deprecated import was
from posterity.gaussian import Gaussian
from posterity.laplace import Scales, tune_strength
from posterity.laplace.evidence import minimise
from posterity.pacbayes.bounds import catoni_best, maurer, mcallester
from posterity.pacbayes.risk import Landscape

BoundName = Literal["catoni", "mcallester", "maurer"]
ScaleName = Literal["alpha", "beta", "temperature"]
EVERY_SCALE: tuple[ScaleName, ...] = ("alpha", "beta", "temperature")


@dataclass(frozen=True)
class Tuned:
    """Scales, and what the paper would report for them: estimates of bounds, not certificates."""

    scales: Scales
    bound: float
    aer: float
    kl: float


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


@was("prior", "model", "curvature")
def tune(
    model: nn.Module | Mapping[str, Tensor],
    curvature: Curvature,
    prior: Gaussian,
    bound: BoundName | Literal["evidence"] = "catoni",
    delta: float = 0.1,
    search: PerLayer | None = None,
) -> Tuned:
    """The scales of least bound estimate, without data: for a target's posterior, or for a source prior on its own data.

    For any objective that grows with risk and KL the best covariance is that of some shared β: in coordinates where the
    prior is the identity, w·E·s + s − ln s is least at s = 1/(1 + wE) for each direction, and w is the same for all. So
    one number is searched for; `PerLayer` is the published search, which never finds better.

    Args:
        model: the trained network, or its blocks' matrices.
        curvature: at these weights.
        prior: what was believed before the data; it is joined to one pair a block where it is a sum.
        bound: "catoni", "mcallester" or "maurer", whose estimate is to be least; "evidence" maximises the marginal likelihood
            over the prior's strength instead, and Catoni's estimate is given with it.
        delta: the bound is to hold with probability 1 − delta.
        search: `PerLayer()` for the published search.
    Returns:
        A `Tuned`: the scales, the bound estimate, the approximate risk and KL. No certificate: see `pt.certify`.

    Example:
        >>> scales = pt.pacbayes.tune(model, curvature, prior).scales
        >>> posterior = pt.update(model, curvature, prior, scales)
    """
    prior = prior if prior.is_compressed else prior.compress()
    landscape = Landscape.of(prior, model, curvature)
    if bound == "evidence":
        scales = tune_strength(model, curvature, prior)
        aer, kl = landscape.aer(scales), landscape.kl(scales)
        return Tuned(scales, catoni_best(aer, kl, landscape.count, delta)[0], aer, kl)
    if isinstance(search, PerLayer):
        return per_layer(landscape, bound, delta, search)
    return one_number(landscape, bound, delta)


def one_number(landscape: Landscape, bound: BoundName = "catoni", delta: float = 0.1) -> Tuned:
    """The same from a landscape: each trial costs one pass over the eigenvalues."""
    values = landscape.together()
    shift = sum(landscape.quadratics.values())
    value = _bound(bound)

    def risk_and_kl(beta: float) -> tuple[float, float]:
        combined = 1 + beta * values
        aer = (landscape.nll + 0.5 * float((values / combined).sum())) / (landscape.count * math.log(2))
        kl = 0.5 * (float(combined.reciprocal().sum()) - values.numel() + float(combined.log().sum()) + shift)
        return aer, max(0.0, kl)

    log_beta = minimise(lambda t: value(*risk_and_kl(math.exp(t)), landscape.count, delta), -40.0, 20.0, tol=1e-7)
    beta = math.exp(log_beta)
    aer, kl = risk_and_kl(beta)
    scales = Scales(beta=beta, provenance=landscape.provenance)
    return Tuned(scales, value(aer, kl, landscape.count, delta), aer, kl)


def per_layer(
    landscape: Landscape, bound: BoundName = "catoni", delta: float = 0.1, search: PerLayer | None = None
) -> Tuned:
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
    return Tuned(scales, _bound(bound)(found_aer, found_kl, landscape.count, delta), found_aer, found_kl)


def _differentiable(landscape: Landscape, logs: Tensor) -> tuple[Tensor, Tensor]:
    trace, kl = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for (name, values), (alpha, beta, tau) in zip(landscape.spectra.items(), logs.exp(), strict=True):
        combined = beta * values + alpha
        trace = trace + tau * (values / combined).sum()
        spread = tau * combined.reciprocal().sum() - values.numel() * (1 + tau.log()) + combined.log().sum()
        kl = kl + 0.5 * (spread + landscape.quadratics[name])
    return (landscape.nll + 0.5 * trace) / (landscape.count * math.log(2)), kl


def _bound(name: BoundName) -> Callable[[float, float, int, float], float]:
    match name:
        case "catoni":
            return lambda risk, kl, n, delta: catoni_best(risk, kl, n, delta)[0]
        case "mcallester":
            return mcallester
        case "maurer":
            return lambda risk, kl, n, delta: maurer(min(1.0, risk), kl, n, delta)
    raise ValueError(f'bound is "catoni", "mcallester" or "maurer", not "{name}"')


def _smooth(name: BoundName) -> Callable[[Tensor, Tensor, int, float], Tensor]:
    """Objectives with the same gradient: Catoni at its present best c, Maurer by the quadratic that touches it."""
    match name:
        case "mcallester":
            return lambda risk, kl, n, delta: risk + ((kl + math.log(2 * math.sqrt(n) / delta)) / (2 * n)).sqrt()
        case "catoni":

            def at_best_c(risk: Tensor, kl: Tensor, n: int, delta: float) -> Tensor:
                _, c = catoni_best(risk.item(), max(0.0, kl.item()), n, delta)
                return -torch.expm1(-c * risk - (kl - math.log(delta)) / n) / -math.expm1(-c)

            return at_best_c
    raise ValueError(f'per-layer tuning knows "catoni" and "mcallester", not "{name}"')
