"""The frame of a structured matrix: where it is diagonal."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Frame:
    """Two bases and values: (left ⊗ right) · matrix · (left ⊗ right)ᵀ = diag(values).

    In float64, but for bases of large blocks that were computed in float32: products with those run in float32.
    """

    values: Float[Tensor, "*batch out inp"]
    bases: tuple[Float[Tensor, "*b out out"], Float[Tensor, "*b inp inp"]] | None = None
    """None where both are the identity, which is made only where it is asked for."""

    @property
    def is_identity(self) -> bool:
        """Whether both bases are the identity, so that nothing needs to be multiplied."""
        return self.bases is None

    @property
    def left(self) -> Float[Tensor, "*b out out"]:
        """The basis of the outputs."""
        return self._eye(-2) if self.bases is None else self.bases[0]

    @property
    def right(self) -> Float[Tensor, "*b inp inp"]:
        """The basis of the inputs."""
        return self._eye(-1) if self.bases is None else self.bases[1]

    def _eye(self, side: int) -> Tensor:
        return torch.eye(self.values.shape[side], dtype=torch.float64, device=self.values.device)

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient leads back to the matrix."""
        return any(x.requires_grad for x in (self.values, *(self.bases or ())))

    def into(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        """left · v · rightᵀ: a matrix in the coordinates of this frame."""
        if self.bases is None:
            return v
        left, right = self.bases
        if left.dtype == v.dtype == right.dtype:
            return left @ v @ right.mT
        return ((left @ v.to(left)).to(right) @ right.mT).to(v)

    def back(self, z: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        """leftᵀ · z · right, the transpose of `into`. With z of variance 1/values this is a draw."""
        if self.bases is None:
            return z
        left, right = self.bases
        if left.dtype == z.dtype == right.dtype:
            return left.mT @ z @ right
        return ((left.mT @ z.to(left)).to(right) @ right).to(z)

    def scaled(self, factor: float) -> Frame:
        """The frame of the matrix times a positive number."""
        return Frame(self.values * factor, self.bases)

    def detach(self) -> Frame:
        """This frame, cut off from automatic differentiation."""
        bases = None if self.bases is None else (self.bases[0].detach(), self.bases[1].detach())
        return Frame(self.values.detach(), bases)
