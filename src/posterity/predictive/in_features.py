"""A last layer's posterior as a function of its features: products with a few matrices, and no training example."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from posterity.errors import NotExportable
from posterity.kernel import FunctionPosterior
from posterity.kernel.directions import DirectionsLatent
from posterity.kernel.last_layer import WeightsLatent
from posterity.kernel.latent import CoupledLatent, SharedLatent
from posterity.kernel.linearised import NetworkCentred


class FeatureGaussian(nn.Module):
    """Normal outputs of a last layer from its features φ: mean θφ, covariance p‖φ‖² I − diag(φᵀN φ) − (Qφ)ᵀQφ + (Aφ)ᵀAφ.

    N, Q and A hold what the triangular solves with the training examples come to, so that none is left to do.
    """

    theta: Tensor
    N: Tensor | None
    Q: Tensor | None
    A: Tensor | None

    def __init__(self, posterior: FunctionPosterior, head: str) -> None:
        super().__init__()
        self.around = isinstance(posterior, NetworkCentred)
        strength = posterior.strength
        own = posterior.of.kernel.frames[head].floor
        latent: Any = posterior.latent
        phi: Tensor = getattr(posterior.of.train.blocks[head], "a", torch.empty(0)).double()
        self.prior, theta, parts = 0.0, torch.empty(0), {}
        match latent:
            case SharedLatent():
                h = own if strength is None else strength.head
                self.prior, theta = 1 / h, latent.weights.mT @ phi / h
                parts["N"] = phi.mT @ latent.inner @ phi / h**2
                if latent.coupling is not None:
                    pulled = latent.inner @ phi / h
                    parts["A"] = torch.linalg.solve_triangular(latent.coupling, pulled, upper=False).transpose(0, 1)
            case WeightsLatent():
                h = own if strength is None else strength.head
                c, inp = latent.theta.shape
                theta = latent.theta / h**0.5
                eye = torch.eye(c * inp, dtype=torch.float64, device=phi.device)
                lower = torch.linalg.solve_triangular(latent.lower, eye, upper=False) / h**0.5
                parts["A"] = lower.view(-1, c, inp)
            case DirectionsLatent():
                floor = own if strength is None else strength.floor
                along = posterior.of.train.blocks[head].d[:, 0].double() / floor  # type: ignore[union-attr]
                self.prior, theta, parts["Q"] = 1 / floor, along[0], along[1:]
            case CoupledLatent() if not getattr(latent, "shared", False):
                floor = own if strength is None else strength.floor
                self.prior, theta = 1 / floor, latent.weights.mT @ phi / floor
                n, c, rank = latent.root.shape
                rows = torch.einsum("ncr,ni->nrci", latent.root, phi).reshape(n * rank, -1) / floor
                parts["Q"] = torch.linalg.solve_triangular(latent.lower, rows, upper=False).view(-1, c, phi.shape[1])
            case _:
                raise NotExportable(f"a {type(latent).__name__} of a last layer has no form for export.")
        self.register_buffer("theta", theta.contiguous())
        for name in "NQA":
            self.register_buffer(name, _fewest(parts[name], name) if name in parts else None)

    def forward(self, phi: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean = outputs if self.around else phi @ self.theta.mT
        own = self.prior * phi.square().sum(-1, keepdim=True).expand_as(mean)
        if self.N is not None:
            own = own - ((phi @ self.N) * phi).sum(-1).mT
        covariance = own[:, :, None] * torch.eye(mean.shape[1], dtype=own.dtype, device=own.device)
        for factor, sign in ((self.Q, -1.0), (self.A, 1.0)):
            if factor is not None:
                k, c, inp = factor.shape
                along = (phi @ factor.reshape(k * c, inp).mT).view(-1, k, c)
                covariance = covariance + sign * (along.mT @ along)
        return mean, covariance


def _fewest(x: Tensor, name: str) -> Tensor:
    """A factor with as few rows as its products need: those of its triangular factor."""
    if name == "N" or len(x) <= x[0].numel():
        return x.contiguous()
    return torch.linalg.qr(x.flatten(1), mode="r").R.view(-1, *x.shape[1:]).contiguous()
