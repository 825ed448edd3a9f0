"""Linear layers, with any number of dimensions between batch and features, and second moments of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.algebra import is_large
from posterity.blocks.base import CHUNK, Layer, Moment, MomentOfRows, with_ones

HALVED = 512
"""Columns from which a symmetric product is multiplied out on and below the diagonal only."""


@dataclass(frozen=True)
class LinearLayer(Layer):
    """W = [weight | bias]. Dimensions between batch and features are positions."""

    @classmethod
    def of(cls, module: nn.Linear, bias: bool) -> LinearLayer:
        """As the module has it."""
        return cls(module.out_features, module.in_features + bias, bias)

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        return joined(parameters["weight"], parameters["bias"] if self.bias else None)

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        return split(matrix, self.bias)

    def positions(self, a: Tensor, s: Tensor) -> int:
        return s[0, ..., 0].numel()

    def rows(self, a: Tensor, s: Tensor) -> tuple[Float[Tensor, "n t inp"], Float[Tensor, "n t out"]]:
        a, s = a.reshape(len(a), -1, a.shape[-1]), s.reshape(len(s), -1, s.shape[-1])
        return with_ones(a) if self.bias else a, s

    def gradient_rows(self, a: Tensor, s: Tensor) -> Float[Tensor, "n t out"]:
        return s.reshape(len(s), -1, s.shape[-1])

    def input_moment(self, shape: torch.Size) -> Moment:
        return RowMoment(self.bias)

    def output_moment(self) -> Moment:
        return RowMoment(bias=False)

    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        a, s = self.rows(a, s)
        return s.mT @ a

    def labels_joined(self, gradients: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(gradients), -1)


class RowMoment(MomentOfRows):
    """By one product of the input rows: by default whatever the last dimension holds. O(rows · inp²).

    Rows wait until there are half as many as columns: a product of few rows is all memory traffic.
    """

    def __init__(self, bias: bool, pieces: Callable[[Tensor], Iterable[Tensor]] | None = None) -> None:
        super().__init__(pieces or (lambda a: (a.reshape(-1, a.shape[-1]),)))
        self.bias = bias
        self.total: Tensor | None = None
        self.waiting: list[Tensor] = []
        self.waiting_rows = 0

    def _add(self, a: Float[Tensor, "rows features"]) -> None:
        self.rows += len(a)
        enough = min(a.shape[1] // 2, CHUNK // a.shape[1])
        if not self.waiting and len(a) >= enough:
            self._sum(a)
            return
        self.waiting.append(a.clone())  # a loader may use one buffer for every batch
        self.waiting_rows += len(a)
        if self.waiting_rows >= enough:
            self._flush()

    def _flush(self) -> None:
        if self.waiting:
            self._sum(torch.cat(self.waiting))
            self.waiting, self.waiting_rows = [], 0

    def _sum(self, a: Float[Tensor, "rows features"]) -> None:
        n = a.shape[1]
        if self.total is None:
            dtype = sum_dtype(n + self.bias, a.dtype)
            self.total = torch.zeros(n + self.bias, n + self.bias, dtype=dtype, device=a.device)
        add_gram(self.total[:n, :n], a)
        if self.bias:
            self.total[n, :n] += a.sum(0)
            self.total[n, n] += len(a)

    def matrix(self) -> Float[Tensor, "inp inp"]:
        self._flush()
        assert self.total is not None
        n = len(self.total) - self.bias
        mirror(self.total[:n, :n])
        if self.bias:
            self.total[:-1, -1] = self.total[-1, :-1]
        return self.total if is_large(len(self.total)) else self.total.clone()


def joined(weight: Float[Tensor, "out ..."], bias: Float[Tensor, "out"] | None) -> Float[Tensor, "out inp"]:
    flat = weight.flatten(1)
    return flat if bias is None else torch.cat((flat, bias[:, None]), 1)


def split(matrix: Float[Tensor, "*batch out inp"], bias: bool) -> dict[str, Tensor]:
    return {"weight": matrix[..., :-1], "bias": matrix[..., -1]} if bias else {"weight": matrix}


@dataclass(frozen=True)
class TransposedLinearLayer(LinearLayer):
    """W = [weightᵀ | bias]. All else is a linear layer's."""

    @classmethod
    def of(cls, module: nn.Module, bias: bool) -> TransposedLinearLayer:
        """As the module has it."""
        inp, out = module.weight.shape  # type: ignore[misc]
        return cls(out, inp + bias, bias)

    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        return joined(parameters["weight"].mT, parameters["bias"] if self.bias else None)

    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        parameters = split(matrix, self.bias)
        return parameters | {"weight": parameters["weight"].mT}


def sum_dtype(side: int, rows: torch.dtype) -> torch.dtype:
    """What a second moment of so many columns is summed in, from rows of this precision: in float64, unless it is large.

    In float64 a ResNet-50's would take 1.3 GB. Rounding in float32 grows by one part in 10⁷ of the largest entries with the root
    of the number of batches.
    """
    return rows if is_large(side) else torch.float64


def add_gram(total: Float[Tensor, "n n"], x: Float[Tensor, "rows n"]) -> None:
    """Add xᵀx, in place. From `HALVED` columns on only blocks on and below the diagonal: `mirror` fills the others in."""
    n = x.shape[1]
    if n < HALVED:
        add_product(total, x, x)
        return
    half = n // 2
    add_gram(total[:half, :half], x[:, :half])
    add_gram(total[half:, half:], x[:, half:])
    add_product(total[half:, :half], x[:, half:], x[:, :half])


def add_product(total: Tensor, x: Float[Tensor, "rows n"], y: Float[Tensor, "rows m"]) -> None:
    """Add xᵀy, in place, to a sum that may be of greater precision."""
    if total.dtype == x.dtype:
        total.addmm_(x.T, y)
    else:
        total += x.T @ y


def mirror(total: Float[Tensor, "n n"]) -> None:
    """Make a sum by `add_gram` symmetric to the last bit, in place."""
    n = len(total)
    if n < HALVED:
        # A product of a matrix with itself is not, where the processor sums its parts in another order.
        total.copy_(symmetrised(total))
        return
    half = n // 2
    mirror(total[:half, :half])
    mirror(total[half:, half:])
    total[:half, half:] = total[half:, :half].T


def gram(x: Float[Tensor, "rows n"], y: Float[Tensor, "rows n"] | None = None) -> Float[Tensor, "n n"]:
    """xᵀx, or an xᵀy known to be symmetric. From `HALVED` columns on only half of it is multiplied out."""
    y = x if y is None else y
    n = x.shape[1]
    if n < HALVED:
        return x.T @ y
    half = n // 2
    result = x.new_empty(n, n)
    result[:half, :half] = gram(x[:, :half], y[:, :half])
    result[half:, half:] = gram(x[:, half:], y[:, half:])
    torch.mm(x[:, half:].T, y[:, :half], out=result[half:, :half])
    result[:half, half:] = result[half:, :half].T
    return result


def symmetrised(x: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """A matrix that is symmetric but for rounding, made exactly so: products of single precision are not."""
    return (x + x.T).div_(2)
