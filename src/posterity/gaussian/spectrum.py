"""The eigenvalues of a precision, exactly where the structure gives them away and estimated where it does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import (
    DenseMatrix,
    DiagonalMatrix,
    JointEigen,
    Kronecker,
    KroneckerSum,
    Matrix,
    RotatedMatrix,
    ScaledIdentity,
)

DENSE_LIMIT = 1024
"""The largest side of a block whose dense form is diagonalised for a look at it: half a second."""
FACTOR_LIMIT = 6000
"""The largest side of a factor that is diagonalised: half a minute."""
STEPS, PROBES, BINS = 40, 4, 16


@dataclass(frozen=True)
class Spectrum:
    """A summary of eigenvalues: the smallest, the median, the largest, and shares in bins."""

    smallest: float
    median: float
    largest: float
    density: tuple[float, ...]
    """Shares in bins of equal width in the logarithm, from the smallest to the largest."""
    exact: bool

    @property
    def condition(self) -> float:
        return self.largest / self.smallest if self.smallest > 0 else math.inf


def spectrum(matrix: Matrix) -> Spectrum | None:
    """How the eigenvalues of a precision lie, or nothing where its factors are too large to be diagonalised.

    A pair has the products of its factors' eigenvalues; identities, diagonals and orthogonal bases show theirs. Sums and
    other bases are diagonalised densely while small, and otherwise estimated by Lanczos: some forty products with the matrix
    and as many solutions, which find the ends well and the middle roughly.
    """
    match matrix:
        case ScaledIdentity():
            value = float(matrix.scale)
            return Spectrum(value, value, value, (1.0,), True)
        case DiagonalMatrix() | RotatedMatrix():
            return _exact(matrix.values.double())
        case JointEigen() if matrix.is_orthogonal:
            return _exact(matrix.values.double())
        case KroneckerSum() if len(matrix.terms) == 1:
            return spectrum(matrix.terms[0])
    if max(matrix.shape) > FACTOR_LIMIT:
        return None
    if isinstance(matrix, Kronecker):
        left, right = (torch.linalg.eigvalsh(x.double()) for x in (matrix.left, matrix.right))
        return _exact(left[:, None] * right[None, :])
    if matrix.size <= DENSE_LIMIT:
        return _exact(torch.linalg.eigvalsh(matrix.dense().double()))
    return None if isinstance(matrix, DenseMatrix) else _estimated(matrix)


def _exact(values: Tensor) -> Spectrum:
    values = values.flatten().sort().values
    return _brief(values, torch.full_like(values, 1 / len(values)), True)


def _estimated(matrix: Matrix) -> Spectrum:
    """Stochastic Lanczos quadrature: nodes and weights from products for the upper half, from solutions for the lower."""
    above = _quadrature(lambda v: matrix.matmul(v), matrix)
    below = _quadrature(lambda v: matrix.solve(v), matrix)
    # Each finds the eigenvalues at its own upper end well; they meet at the geometric middle.
    middle = math.sqrt(float(above[0].max()) / max(float(below[0].max()), 1e-300))
    low, high = 1 / below[0].clamp_min(1e-300), above[0]
    nodes = torch.cat([low[low < middle], high[high >= middle]])
    weights = torch.cat([below[1][low < middle], above[1][high >= middle]])
    order = nodes.argsort()
    return _brief(nodes[order], weights[order] / weights.sum(), False)


def _quadrature(
    product: Callable[[Tensor], Tensor], matrix: Matrix
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Eigenvalues and weights of the tridiagonal matrices that Lanczos makes from a few random starts at once."""
    generator, steps = torch.Generator().manual_seed(0), min(STEPS, matrix.size)
    v = torch.randn(PROBES, matrix.size, dtype=torch.float64, generator=generator).to(matrix.device)
    basis = v.new_zeros(PROBES, steps + 1, matrix.size)
    basis[:, 0] = v / v.norm(dim=-1, keepdim=True)
    small = v.new_zeros(PROBES, steps + 1, steps + 1)
    for k in range(steps):
        w = product(basis[:, k].unflatten(-1, matrix.shape)).flatten(-2)
        small[:, k, k] = (w * basis[:, k]).sum(-1)
        # Against all earlier vectors, twice: plain Lanczos forgets them and finds eigenvalues again and again.
        earlier = basis[:, : k + 1]
        for _ in range(2):
            w = w - (earlier.mT @ (earlier @ w[..., None])).squeeze(-1)
        rest = w.norm(dim=-1)
        # A start that is used up goes on as zeros, which get no weight.
        rest = torch.where(rest > 1e-12 * small[:, 0, 0].abs(), rest, 0.0)
        basis[:, k + 1] = torch.where(rest[:, None] > 0, w / rest[:, None], 0.0)
        small[:, k, k + 1] = small[:, k + 1, k] = rest
    values, vectors = torch.linalg.eigh(small[:, :steps, :steps])
    return values.flatten(), vectors[:, 0].square().flatten() / PROBES


def _brief(values: Float[Tensor, " n"], weights: Float[Tensor, " n"], exact: bool) -> Spectrum:
    """The summary of sorted eigenvalues."""
    below = int(torch.searchsorted(weights.cumsum(0), torch.tensor(0.5, dtype=weights.dtype, device=weights.device)))
    smallest, largest = float(values[0]), float(values[-1])
    logs = values.clamp_min(max(largest, 1e-300) * 1e-16).log()
    width = float(logs[-1] - logs[0])
    if not width > 1e-9:
        density = (1.0,)
    else:
        bins = ((logs - logs[0]) / width * BINS).long().clamp_max(BINS - 1)
        shares = torch.zeros(BINS, dtype=weights.dtype, device=weights.device).index_add_(0, bins, weights)
        density = tuple(shares.tolist())
    return Spectrum(smallest, float(values[min(below, len(values) - 1)]), largest, density, exact)
