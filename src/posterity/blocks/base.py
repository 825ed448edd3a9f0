"""The interface of a layer: its weights as one matrix, its calls as rows of inputs and gradients. A block is a layer by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.errors import BatchLost

CHUNK = 1 << 24
"""Entries of a temporary (64 MB in float32) beyond which work on a batch goes piece by piece."""

LARGE = 1024
"""Columns from which a second moment is summed in the network's precision: in float64 a ResNet-50's would take 1.3 GB.

Rounding then grows by one part in 10⁷ of the largest entries with the root of the number of batches."""

HALVED = 512
"""Columns from which a symmetric product is multiplied out on and below the diagonal only."""


@dataclass(frozen=True)
class Layer(ABC):
    """One kind of layer, seen as a matrix `W` (out × inp, the bias its last column).

    A call on a batch is a set of *positions* t (one for a linear layer, one per output pixel for a convolution) with
    input rows `a_t` and gradient rows `s_t`, such that the gradient of example n is `G_n = Σ_t s_t a_tᵀ`.
    Estimators of curvature see layers through this class alone.
    """

    out: int
    inp: int
    bias: bool

    @property
    def separable(self) -> bool:
        """Whether a Kronecker pair can describe the layer. Elementwise layers are diagonal instead."""
        return True

    @abstractmethod
    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        """The matrix, from the layer's own parameters ("weight", "bias")."""

    @abstractmethod
    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        """The parameters, from the matrix. Leading dimensions (draws, say) are carried along."""

    def by_example(self, x: Tensor, examples: int, name: str) -> Tensor:
        """A call's raw input or output gradient, examples first: the form in which the methods below take them."""
        return batch_first(x, examples, name)

    def spread(self, a: Tensor, out: Tensor, examples: int) -> tuple[Tensor, Tensor]:
        """A call's input and output, repeated for every example where one row stands for all of them."""
        return a, out

    @abstractmethod
    def positions(self, a: Tensor, s: Tensor) -> int:
        """How many positions a call has per example: as many as it has rows."""

    @abstractmethod
    def rows(self, a: Tensor, s: Tensor) -> tuple[Float[Tensor, "n t inp"], Float[Tensor, "n t out"]]:
        """A call as input rows (with the bias's 1) and gradient rows."""

    @abstractmethod
    def input_moment(self, shape: torch.Size) -> Moment:
        """A running Σ a aᵀ over positions, in whatever way is fastest for inputs of this shape (batch first)."""

    @abstractmethod
    def output_moment(self) -> Moment:
        """A running Σ s sᵀ of gradient rows over examples and positions."""

    @abstractmethod
    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        """The gradient matrix of every example."""

    def squares(self, calls: Sequence[tuple[Tensor, Tensor]]) -> Float[Tensor, "out inp"] | None:
        """Σ_n G_n², entry by entry, where the layer has a shorter way than its gradients written out."""
        return None


@dataclass(frozen=True)
class Block:
    """One named matrix of a network: the kind of layer, and which of the network's parameters it is made of."""

    name: str
    layer: Layer
    parameters: Mapping[str, str]
    """From the layer's own names ("weight", "bias") to the network's ("conv1.weight")."""
    modules: tuple[nn.Module, ...] = field(repr=False, compare=False)
    """More than one where modules share their parameters."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs, the bias counted as an input."""
        return self.layer.out, self.layer.inp


class Moment(ABC):
    """A running second moment Σ_t a_t a_tᵀ of a layer's input rows, and how many rows it has seen."""

    def __init__(self) -> None:
        self.rows = 0

    @abstractmethod
    def add(self, a: Tensor) -> None:
        """Count the input rows of one more batch."""

    @abstractmethod
    def matrix(self) -> Float[Tensor, "inp inp"]:
        """The sum, symmetric to the last bit; in float64, or in the network's precision from `LARGE` columns on.

        A large sum is handed out itself, not copied: nothing can be added afterwards.
        """


class RowMoment(Moment):
    """By one product of the input rows. O(rows · inp²).

    Rows wait until there are half as many as columns: a product of few rows is all memory traffic.
    """

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.bias = bias
        self.total: Tensor | None = None
        self.waiting: list[Tensor] = []
        self.waiting_rows = 0

    def add(self, a: Float[Tensor, "rows features"]) -> None:
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
        return self.total if len(self.total) >= LARGE else self.total.clone()


def sum_dtype(side: int, rows: torch.dtype) -> torch.dtype:
    """What a second moment of so many columns is summed in, from rows of this precision."""
    return rows if side >= LARGE else torch.float64


def add_gram(total: Float[Tensor, "n n"], x: Float[Tensor, "rows n"]) -> None:
    """Add xᵀx, in place. From `HALVED` columns on only blocks on and below the diagonal: `mirror` fills the others in."""
    n = x.shape[1]
    if n < HALVED:
        _add_product(total, x, x)
        return
    half = n // 2
    add_gram(total[:half, :half], x[:, :half])
    add_gram(total[half:, half:], x[:, half:])
    _add_product(total[half:, :half], x[:, half:], x[:, :half])


def _add_product(total: Tensor, x: Float[Tensor, "rows n"], y: Float[Tensor, "rows m"]) -> None:
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


def with_ones(rows: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n1"]:
    return torch.cat((rows, rows.new_ones(*rows.shape[:-1], 1)), -1)


def batch_first(x: Tensor, examples: int, name: str) -> Tensor:
    """x with the examples along its first dimension, whether the network puts them first, second or folds them."""
    if x.shape[0] == examples:
        return x
    if x.ndim >= 3 and x.shape[1] == examples:
        return x.transpose(0, 1)
    if x.shape[0] % examples == 0:
        return x.unflatten(0, (examples, -1))
    raise batch_lost(x, examples, name)


def batch_lost(x: Tensor, examples: int, name: str) -> BatchLost:
    return BatchLost(
        f'block "{name}" sees a tensor of shape {tuple(x.shape)} in a batch of {examples} examples: neither its first '
        "nor its second dimension tells the examples apart. Leave the block out with blocks=..., or use one example a batch."
    )


def accumulating(x: Tensor) -> Tensor:
    """Sums over data need float32 or better, whatever precision the network runs in."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
