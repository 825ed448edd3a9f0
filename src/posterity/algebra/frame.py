"""A basis in which a definite matrix is diagonal: what solving, whitening and drawing are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Frame:
    """Two bases and values: (left ⊗ right) · matrix · (left ⊗ right)ᵀ = diag(values), in float64."""

    left: Float[Tensor, "*b out out"]
    right: Float[Tensor, "*b inp inp"]
    values: Float[Tensor, "*batch out inp"]

    @property
    def is_identity(self) -> bool:
        """Whether both bases are the identity, so that nothing needs to be multiplied."""
        return False

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient leads back to the matrix."""
        return any(x.requires_grad for x in (self.left, self.right, self.values))

    def into(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        """left · v · rightᵀ: a matrix in the coordinates of this frame."""
        return self.left @ v @ self.right.mT

    def back(self, z: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        """leftᵀ · z · right, the transpose of `into`. With z of variance 1/values this is a draw."""
        return self.left.mT @ z @ self.right

    def scaled(self, factor: float) -> Frame:
        """The frame of the matrix times a positive number."""
        return Frame(self.left, self.right, self.values * factor)

    def detach(self) -> Frame:
        """The same without a gradient."""
        return Frame(self.left.detach(), self.right.detach(), self.values.detach())


class IdentityFrame(Frame):
    """The frame of a diagonal matrix. Its bases are made only where they are asked for."""

    def __init__(self, values: Float[Tensor, "*batch out inp"]) -> None:
        object.__setattr__(self, "values", values)

    @property
    def left(self) -> Float[Tensor, "out out"]:
        return self._eye(-2)

    @property
    def right(self) -> Float[Tensor, "inp inp"]:
        return self._eye(-1)

    def _eye(self, side: int) -> Tensor:
        return torch.eye(self.values.shape[side], dtype=torch.float64, device=self.values.device)

    @property
    def is_identity(self) -> bool:
        return True

    @property
    def requires_grad(self) -> bool:
        return self.values.requires_grad

    def into(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return v

    def back(self, z: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        return z

    def scaled(self, factor: float) -> Frame:
        return IdentityFrame(self.values * factor)

    def detach(self) -> Frame:
        return IdentityFrame(self.values.detach())
