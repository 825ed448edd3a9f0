"""A normal distribution over one block, ready to be drawn from: the one way in which weights are drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import Matrix
from posterity.errors import NotExact


@dataclass(frozen=True, eq=False)
class Spread(ABC):
    """A block's normal distribution, factorised, in the precision of its mean."""

    mean: Float[Tensor, "out inp"]

    @staticmethod
    def of(mean: Tensor, precision: Matrix, like: Tensor | None = None) -> Spread:
        """The distribution with this mean and precision, on the device and in the dtype of `like` (the mean's without).

        The precision is factorised once, in float64 but for large blocks in float32: matrices keep their frames.
        """
        like = mean if like is None else like
        try:
            frame = precision.frame()
        except NotExact:
            return DenseSpread(mean.to(like), precision)
        left, right = (None if x is None or _is_identity(x) else x.to(like) for x in frame.bases or (None, None))
        turned = None if left is None else left.mT.contiguous()
        return FrameSpread(mean.to(like), turned, right, frame.values.rsqrt().to(like))

    @abstractmethod
    def draw(self, n: int, generator: torch.Generator | None) -> Float[Tensor, "n out inp"]:
        """Draw n independent weight matrices."""

    @abstractmethod
    def noise(
        self, a: Float[Tensor, "n inp"], generator: torch.Generator | None, repeats: int = 1
    ) -> Float[Tensor, "m out"]:
        """(W − mean) a with another W for every row and repeat, in the rows' order."""


@dataclass(frozen=True, eq=False)
class FrameSpread(Spread):
    """W = mean + left (deviation ⊙ Z) right, Z standard normal.

    Any of its tensors may carry a gradient. `left` and `right` are None where they are the identity.
    """

    left: Float[Tensor, "out out"] | None
    right: Float[Tensor, "inp inp"] | None
    deviation: Float[Tensor, "out inp"]

    def draw(self, n: int, generator: torch.Generator | None) -> Float[Tensor, "n out inp"]:
        out, inp = self.mean.shape
        z = _noise((n, out, inp), self.mean, generator) * self.deviation
        if self.left is not None:
            # With the outputs in front it is one large product rather than n small ones.
            z = (self.left @ z.transpose(0, 1).reshape(out, n * inp)).view(out, n, inp).transpose(0, 1)
        z = z if self.right is None else z @ self.right
        return z + self.mean

    def noise(
        self, a: Float[Tensor, "n inp"], generator: torch.Generator | None, repeats: int = 1
    ) -> Float[Tensor, "m out"]:
        """Cheap, since the entries of (W − mean) a are independent in the left basis."""
        u = a if self.right is None else a @ self.right.mT
        variance = u.square() @ self.deviation.square().mT
        # A row of zeros has no noise, and the root no slope there.
        z = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
        z = z if repeats == 1 else z.repeat_interleave(repeats, 0)
        z = z * _noise(tuple(z.shape), z, generator)
        return z if self.left is None else z @ self.left.mT


@dataclass(frozen=True, eq=False)
class DenseSpread(Spread):
    """A normal distribution whose precision has no product of bases: drawn whole, in float64."""

    precision: Matrix

    def draw(self, n: int, generator: torch.Generator | None) -> Float[Tensor, "n out inp"]:
        return self.mean + self.precision.sample(n, generator=generator).to(self.mean)

    def noise(
        self, a: Float[Tensor, "n inp"], generator: torch.Generator | None, repeats: int = 1
    ) -> Float[Tensor, "m out"]:
        rows = a if repeats == 1 else a.repeat_interleave(repeats, 0)
        own = replace(self, mean=torch.zeros_like(self.mean)).draw(len(rows), generator)
        return (own @ rows[..., None]).squeeze(-1)


def _noise(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    where = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=where, generator=generator).to(like.device)


def _is_identity(x: Tensor) -> bool:
    if not bool((x.diagonal() == 1).all()):
        return False  # known without an identity of that size
    return bool((x == torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)).all())
