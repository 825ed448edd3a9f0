"""A last layer's posterior as a function of its features: products with a few matrices, and no training example."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.errors import NotExportable
from posterity.kernel import FunctionPosterior
from posterity.kernel.directions import DirectionsLatent
from posterity.kernel.last_layer import WeightsLatent
from posterity.kernel.latent import CoupledLatent, SharedLatent
from posterity.kernel.linearised import NetworkCentred


class FeatureGaussian(nn.Module):
    """Normal outputs of a last layer from its features φ: mean θφ, covariance diag‖Rφ‖² + (Aφ)ᵀAφ, or p‖φ‖² I − (Qφ)ᵀQφ.

    R, A and Q hold what the triangular solves with the training examples come to, so that none is left to do. R and A are in
    the precision of the layer's weights: only squares are added up, and no digits cancel. A bias's 1 is the last of φ here, and
    is not given.
    """

    factor: Tensor
    eye: Tensor

    def __init__(self, posterior: FunctionPosterior, head: str, precision: torch.dtype = torch.float64) -> None:
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
                theta = latent.weights.mT @ phi / h
                eye = torch.eye(phi.shape[1], dtype=phi.dtype, device=phi.device)
                values, turned = torch.linalg.eigh(eye / h - phi.mT @ latent.inner @ phi / h**2)
                parts["R"] = values.clamp_min(0).sqrt()[..., None] * turned.mT
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
        squares, joint = parts.get("R"), parts["Q"] if "Q" in parts else parts.get("A")
        self.outputs, self.inputs = theta.shape
        self.subtracted, self.squares = "Q" in parts, 0 if squares is None else len(squares) * squares.shape[1]
        linear = [theta, squares, None if joint is None else _fewest(joint)]
        factor = torch.cat([x.reshape(-1, self.inputs) for x in linear if x is not None]).mT
        self.register_buffer("factor", factor.to(factor.dtype if self.subtracted else precision).contiguous())
        self.register_buffer("eye", torch.eye(self.outputs).to(self.factor))

    def forward(self, phi: Float[Tensor, "n features"], outputs: Float[Tensor, "n outputs"]) -> tuple[Tensor, Tensor]:
        """Mean and covariance in float64: all that is linear in the features is one product."""
        c, phi, factor = self.outputs, phi.to(self.factor.dtype), self.factor
        along = phi @ factor if phi.shape[1] == self.inputs else torch.addmm(factor[-1], phi, factor[:-1])
        mean, squares, joint = along.split([c, self.squares, along.shape[1] - c - self.squares], 1)
        joint = joint.view(joint.shape[0], joint.shape[1] // c, c)
        covariance = torch.bmm(joint.mT, joint)
        if self.subtracted:
            length = phi.square().sum(-1) + (self.inputs - phi.shape[1])
            covariance = self.prior * length[:, None, None] * self.eye - covariance
        elif self.squares:
            own = squares.view(-1, c, self.squares // c).square().sum(-1)
            covariance = torch.addcmul(covariance, own[:, :, None], self.eye)
        return (outputs if self.around else mean).double(), covariance.double()


def _fewest(x: Tensor) -> Tensor:
    """A factor with as few rows as its products need: those of its triangular factor."""
    if len(x) <= x[0].numel():
        return x
    return torch.linalg.qr(x.flatten(1), mode="r").R.view(-1, *x.shape[1:])
