"""The prior of one block, turned so that its precision is diagonal: share · source + floor for every strength at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import DenseMatrix, DiagonalMatrix, JointEigen, Matrix, ScaledIdentity, as_floored, is_large


@dataclass(frozen=True, eq=False)
class BlockFrame:
    """Orthogonal directions in which a block's learned curvature is diagonal, and its values there.

    A dense curvature has directions over all weights of the block at once (`whole`); any other has a basis for the outputs and
    one for the inputs, either None where it is the identity. `source` is None where nothing was learned.
    """

    shape: tuple[int, int]
    left: Float[Tensor, "out out"] | None
    right: Float[Tensor, "inp inp"] | None
    whole: Float[Tensor, "size size"] | None
    source: Float[Tensor, "out inp"] | None
    share: float
    floor: float

    @classmethod
    def of(cls, precision: Matrix) -> BlockFrame:
        """From a prior's precision, brought to the form share · curvature + floor where it has another."""
        family = as_floored(precision)
        numbers = (family.share, family.floor)
        match family.diagonalised:
            case ScaledIdentity() as identity:
                scale = float(identity.scale)
                source = None if scale == 0 else torch.full(family.shape, scale, dtype=torch.float64)
                return cls(family.shape, None, None, None, source, *numbers)
            case DiagonalMatrix() as diagonal:
                return cls(family.shape, None, None, None, diagonal.values.double(), *numbers)
            case JointEigen() as eigen:
                left, right = eigen.left.matrix, eigen.right.matrix
                if not is_large(*family.shape):
                    left, right = left.double(), right.double()
                return cls(family.shape, left, right, None, eigen.values.double(), *numbers)
            case DenseMatrix() as dense:
                values, vectors = torch.linalg.eigh(dense.values.double())
                source = values.clamp_min(0).unflatten(-1, family.shape)
                return cls(family.shape, None, None, vectors, source, *numbers)
        raise AssertionError(f"no frame for {type(family.curvature).__name__}")

    def turned(self, x: Float[Tensor, "*batch out inp"]) -> Float[Tensor, "*batch out inp"]:
        """Coordinates of matrices in the frame, in their own precision."""
        if self.whole is not None:
            return (x.flatten(-2) @ self.whole.to(x)).unflatten(-1, self.shape)
        x = x if self.left is None else self.left.mT.to(x) @ x
        return x if self.right is None else x @ self.right.to(x)
