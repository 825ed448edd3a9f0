"""The approximate risk and the KL divergence of a Laplace posterior, from curvature, prior and mode alone: no data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from posterity.curvature import Curvature
from posterity.data.provenance import Provenance
from posterity.gaussian import Gaussian
from posterity.laplace import Scales, relative_spectrum
from posterity.laplace.update import block_means, depends_on


@dataclass(frozen=True, eq=False)
class Landscape:
    """All that the scales can change: per block the spectrum E of curvature relative to the prior, and how far the mode moved.

    `aer` bounds the expected 0-1 error approximately (a Taylor expansion, and the Fisher for the Hessian): it serves to
    choose scales, not to certify.
    """

    spectra: Mapping[str, Tensor]
    quadratics: Mapping[str, float]
    nll: float
    count: int
    provenance: Provenance = field(default_factory=lambda: Provenance.unknown("a landscape made by hand"), repr=False)

    @classmethod
    def of(cls, prior: Gaussian, model: nn.Module | Mapping[str, Tensor], curvature: Curvature) -> Landscape:
        """The prior must be one pair (or identity) a block: `prior.compress()` makes it so."""
        mean = block_means(prior, model)
        spectra, quadratics = {}, {}
        for name in prior.blocks:
            spectra[name] = relative_spectrum(prior.precision[name], curvature[name]).flatten()
            shift = mean[name].double() - prior.mean[name].double()
            quadratics[name] = float(prior.precision[name].quadratic(shift))
        return cls(spectra, quadratics, curvature.nll, curvature.count, depends_on(prior, model, curvature))

    def aer(self, scales: Scales) -> float:
        """(NLL + ½ Σ τ tr F(βF + αP)⁻¹) / (N ln 2)."""
        trace = 0.0
        for name, values in self.spectra.items():
            alpha, beta, tau = scales.of(name)
            trace += tau * float((values / (beta * values + alpha)).sum())
        return (self.nll + 0.5 * trace) / (self.count * math.log(2))

    def kl(self, scales: Scales) -> float:
        """KL(posterior ‖ prior) in nats, exactly."""
        total = 0.0
        for name, values in self.spectra.items():
            alpha, beta, tau = scales.of(name)
            combined = beta * values + alpha
            spread = (
                tau * float(combined.reciprocal().sum())
                - values.numel() * (1 + math.log(tau))
                + float(combined.log().sum())
            )
            total += 0.5 * (spread + self.quadratics[name])
        return max(0.0, total)

    def together(self) -> Tensor:
        """The spectra of all blocks in one vector."""
        return torch.cat(list(self.spectra.values()))
