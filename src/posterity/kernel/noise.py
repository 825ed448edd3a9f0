"""Regression: the noise, and the strength of the prior, by leave-one-out in closed form.

With K = QΛQᵀ and r = targets − outputs at the prior's mean, A = K/floor + s·I gives every left-out residual and variance
at once: eᵢ = (A⁻¹r)ᵢ / (A⁻¹)ᵢᵢ and 1/(A⁻¹)ᵢᵢ. One eigendecomposition serves all floors and noises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from posterity.curvature import GaussianNoise
from posterity.kernel.jacobian import Jacobian
from posterity.kernel.kernels import SHARES, Kernel, Strength
from posterity.kernel.latent import symmetric

FLOORS = tuple(10.0 ** (i / 2) for i in range(-6, 7))
NOISES = tuple(10.0 ** (i / 6) for i in range(-36, 13))
"""Variances of the noise, in units of the residuals' variance at the prior's mean."""


@dataclass(frozen=True)
class Noise:
    """A strength of the prior and a noise precision, with the score they were chosen by."""

    strength: Strength
    precision: float
    nll: float
    options: int


def choose_noise(
    kernel: Kernel, train: Jacobian, start: Tensor, targets: Tensor, shares: Iterable[float] | None = None
) -> Noise:
    """The (share, floor, noise) of least leave-one-out NLL: exact for the linearised model."""
    residual = (targets.double().view_as(start) - start.double()).flatten()
    unit = max(float(residual.square().mean()), 1e-12)
    all_shares = tuple(shares) if shares is not None else (SHARES if kernel.learned else (0.0,))
    noises = unit * torch.tensor(NOISES, dtype=torch.float64)
    best = (math.inf, Strength(), 1.0)
    for share in all_shares:
        # Without a share all floors have the same directions: one decomposition serves them.
        for floor in FLOORS if share else FLOORS[:1]:
            gram = kernel.own(train, Strength(share, floor)).reshape(len(residual), -1)
            values, vectors = torch.linalg.eigh(symmetric(gram))
            along, squares = vectors.mT @ residual, vectors.square()
            for scaled in (floor,) if share else FLOORS:
                inverse = 1 / (values.clamp_min(0)[:, None] * (floor / scaled) + noises)
                precise = squares @ inverse
                error = (vectors @ (inverse * along[:, None])) / precise
                nll = 0.5 * (error.square() * precise - precise.log()).mean(0) + 0.5 * math.log(2 * math.pi)
                k = int(nll.argmin())
                if float(nll[k]) < best[0]:
                    best = (float(nll[k]), Strength(share, scaled), 1 / float(noises[k]))
    return Noise(best[1], best[2], best[0], len(all_shares) * len(FLOORS) * len(NOISES))


def residual_noise(outputs: Tensor, targets: Tensor) -> GaussianNoise:
    """The noise of greatest likelihood around given outputs."""
    variance = float((targets.double().view_as(outputs) - outputs.double()).square().mean())
    return GaussianNoise(1 / max(variance, 1e-10))
