"""The paper's baseline for the scales: try them all, keep those with the best accuracy on validation data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from posterity.algebra import JointEigen, Kronecker, Matrix, ScaledIdentity
from posterity.bars import bar
from posterity.curvature import Curvature
from posterity.data import Data
from posterity.data.provenance import Provenance
from posterity.errors import NotFinite
from posterity.gaussian import Gaussian
from posterity.laplace import Scales, update
from posterity.pacbayes.gibbs import gibbs_risk

WEIGHTS = (0.01, 0.1, 0.3, 0.5, 0.8, 0.9, 0.99, 1.0, 2.0)
TEMPERATURES = tuple(10.0**-i for i in range(1, 27))


@dataclass(frozen=True)
class Trial:
    """One choice of the scales and the accuracy that single draws had with it on the validation data."""

    scales: Scales
    accuracy: float


def grid_search(
    prior: Gaussian,
    model: nn.Module,
    curvature: Curvature,
    validation: Data,
    *,
    alphas: Sequence[float] = WEIGHTS,
    betas: Sequence[float] = WEIGHTS,
    temperatures: Sequence[float] = TEMPERATURES,
    passes: int = 1,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> Trial:
    """The scales shared by all blocks whose draws classify the validation data best; of equals the warmest.

    (cα, cβ, cτ) is the same posterior for every c, so that each posterior is tried once however often the grid has it.
    """
    prior = prior if prior.is_compressed else prior.compress()
    start = update(model, curvature, prior, join="sum")
    bases = {name: _joint(prior.precision[name], curvature[name]) for name in prior.blocks}
    distinct = {
        (f"{a / t:.9e}", f"{b / t:.9e}"): Scales(a, b, t)
        for t in sorted(temperatures, reverse=True)
        for a in alphas
        for b in betas
    }
    best: Trial | None = None
    bars = bar()
    bars.disable = not progress
    with bars:
        for scales in bars.track(distinct.values(), description="grid search"):
            precision = {name: _combined(prior, curvature, name, basis, scales) for name, basis in bases.items()}
            posterior = replace(start, precision=precision)
            try:
                risk = gibbs_risk(model, posterior, validation, passes=passes, generator=generator, progress=False)
            except NotFinite:
                continue  # drawn so wide that outputs overflow: these scales classify nothing
            if best is None or 1 - risk.error > best.accuracy:
                best = Trial(scales, 1 - risk.error)
    if not distinct:
        raise ValueError("a grid search needs at least one α, one β and one temperature")
    if best is None:
        raise NotFinite(
            f"none of the {len(distinct):,} posteriors of the grid has draws with finite outputs: try colder temperatures."
        )
    seen = start.provenance.joined(Provenance.of(validation))
    return Trial(replace(best.scales, provenance=seen), best.accuracy)


def _joint(prior: Matrix, curvature: Matrix) -> JointEigen | None:
    """The set-up that all trials share, where there is one."""
    if isinstance(prior, ScaledIdentity):
        prior = Kronecker.unchecked(*prior.factors())
    if isinstance(prior, Kronecker) and isinstance(curvature, Kronecker):
        return prior.to(dtype=torch.float64).joint(curvature)
    return None


def _combined(prior: Gaussian, curvature: Curvature, name: str, basis: JointEigen | None, scales: Scales) -> Matrix:
    alpha, beta, tau = scales.of(name)
    if basis is None:
        one = prior.restricted([name])
        return update(one.mean, curvature, one, scales).precision[name]
    return basis.combine(alpha / tau, beta / tau)
