"""Scales of least bound. The optimum over all covariances is one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from posterity.curvature import Curvature
from posterity.deprecated import was
from posterity.gaussian import Gaussian
from posterity.laplace import Scales, tune_strength
from posterity.laplace.evidence import minimise
from posterity.pacbayes.bounds import catoni_best, maurer, mcallester
from posterity.pacbayes.risk import Landscape

BoundName = Literal["catoni", "mcallester", "maurer"]


@dataclass(frozen=True)
class TunedScales:
    """Scales, and what the paper would report for them: estimates of bounds, not certificates."""

    scales: Scales
    bound: float
    aer: float
    kl: float


@was("prior", "model", "curvature")
def tune(
    model: nn.Module | Mapping[str, Tensor],
    curvature: Curvature,
    prior: Gaussian,
    bound: BoundName | Literal["evidence"] = "catoni",
    delta: float = 0.1,
) -> TunedScales:
    """The scales of least bound estimate, without data: for a target's posterior, or for a source prior on its own data.

    For any objective that grows with risk and KL the best covariance is that of some shared β: in coordinates where the
    prior is the identity, w·E·s + s − ln s is least at s = 1/(1 + wE) for each direction, and w is the same for all. So
    one number is searched for. The published search, Adam over three scales a layer, never finds better (see the studies).

    Args:
        model: the trained network, or its blocks' matrices.
        curvature: at these weights.
        prior: what was believed before the data; it is joined to one pair a block where it is a sum.
        bound: "catoni", "mcallester" or "maurer", whose estimate is to be least; "evidence" maximises the marginal likelihood
            over the prior's strength instead, and Catoni's estimate is given with it.
        delta: the bound is to hold with probability 1 − delta.
    Returns:
        A `TunedScales`: the scales, the bound estimate, the approximate risk and KL. No certificate: see `pt.certify`.

    Example:
        >>> scales = pt.pacbayes.tune(model, curvature, prior).scales
        >>> posterior = pt.update(model, curvature, prior, scales)
    """
    prior = prior if prior.is_compressed else prior.compress()
    landscape = Landscape.of(prior, model, curvature)
    if bound == "evidence":
        scales = tune_strength(model, curvature, prior)
        aer, kl = landscape.aer(scales), landscape.kl(scales)
        return TunedScales(scales, catoni_best(aer, kl, landscape.count, delta)[0], aer, kl)
    return one_number(landscape, bound, delta)


def one_number(landscape: Landscape, bound: BoundName = "catoni", delta: float = 0.1) -> TunedScales:
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
    return TunedScales(scales, value(aer, kl, landscape.count, delta), aer, kl)


def _bound(name: BoundName) -> Callable[[float, float, int, float], float]:
    match name:
        case "catoni":
            return lambda risk, kl, n, delta: catoni_best(risk, kl, n, delta)[0]
        case "mcallester":
            return mcallester
        case "maurer":
            return lambda risk, kl, n, delta: maurer(min(1.0, risk), kl, n, delta)
    raise ValueError(f'bound is "catoni", "mcallester" or "maurer", not "{name}"')
