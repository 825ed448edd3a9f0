"""A normal distribution over one block, ready to be drawn from in the precision of a network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import Matrix


@dataclass(frozen=True, eq=False)
class Spread:
    """A block's normal distribution as W = mean + left (deviation ⊙ Z) right, Z standard normal.

    Any of its tensors may carry a gradient. `left` and `right` are None where they are the identity.
    """

    mean: Float[Tensor, "out inp"]
    left: Float[Tensor, "out out"] | None
    right: Float[Tensor, "inp inp"] | None
    deviation: Float[Tensor, "out inp"]

    @classmethod
    def of(cls, mean: Tensor, precision: Matrix) -> Spread:
        frame = precision.frame()
        left, right = (None if _is_identity(x) else x for x in (frame.left, frame.right))
        return cls(mean, None if left is None else left.mT.contiguous(), right, frame.values.rsqrt())

    def to(self, like: Tensor) -> Spread:
        left, right = (None if x is None else x.to(like) for x in (self.left, self.right))
        return Spread(self.mean.to(like), left, right, self.deviation.to(like))

    def moved(self, x: Float[Tensor, "*batch out inp"]) -> Float[Tensor, "*batch out inp"]:
        """left x right."""
        x = x if self.right is None else x @ self.right
        return x if self.left is None else self.left @ x

    def draw(self, n: int, generator: torch.Generator | None) -> Float[Tensor, "n out inp"]:
        """n independent matrices."""
        out, inp = self.mean.shape
        # The outputs lead, so that either side is one large product rather than n small ones.
        z = _noise((out, n, inp), self.mean, generator) * self.deviation[:, None, :]
        z = z if self.left is None else (self.left @ z.view(out, n * inp)).view(out, n, inp)
        z = z if self.right is None else z @ self.right
        return (z + self.mean[:, None, :]).transpose(0, 1)

    def noise(
        self, a: Float[Tensor, "n inp"], generator: torch.Generator | None, repeats: int = 1
    ) -> Float[Tensor, "m out"]:
        """(W − mean) a with another W for every row and repeat: its entries are independent in the left basis."""
        u = a if self.right is None else a @ self.right.mT
        variance = u.square() @ self.deviation.square().mT
        # A row of zeros has no noise, and the root no slope there.
        z = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
        z = z if repeats == 1 else z.repeat_interleave(repeats, 0)
        z = z * _noise(tuple(z.shape), z, generator)
        return z if self.left is None else z @ self.left.mT


def _noise(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    where = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=where, generator=generator).to(like.device)


def _is_identity(x: Tensor) -> bool:
    return bool((x == torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)).all())
