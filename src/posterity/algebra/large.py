"""Which blocks are large, and the eigenvectors of their factors: small ones in float64, large ones in their own precision."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

LARGE = 1024
"""Sides from which a factor in float32 is decomposed, and its frame kept, in float32: half the memory, a third of the time.

Its eigenvalues are then good to about 10⁻⁷ of the largest, which is what the rounding of its entries left of them."""


def is_large(*sides: int) -> bool:
    """Whether a block with these sides keeps its bases in the precision of its factors."""
    return max(sides) >= LARGE


def eigenvectors(
    factor: Float[Tensor, "n n"], *, single: bool | None = None, rank: int | None = None
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n n"]]:
    """Eigenvalues (none negative, ascending) and eigenvectors of a positive semidefinite factor.

    Args:
        factor: symmetric.
        single: whether to compute in float32; by default where the factor is in float32 and large.
        rank: an upper bound on its rank, such as the number of rows that it was summed from. Where that is less than half of
            the side of a large factor, only its range is diagonalised, and completed to a basis: many times sooner.
    Returns:
        Values in float64 and vectors as columns, in the precision they were computed in.
    """
    if single is None:
        single = factor.dtype == torch.float32 and is_large(len(factor))
    # At a largest entry of one: LAPACK's single precision does not converge where squares of entries leave its range.
    size = float(factor.abs().max())
    if size == 0:
        eye = torch.eye(len(factor), dtype=torch.float32 if single else torch.float64, device=factor.device)
        return torch.zeros(len(factor), dtype=torch.float64, device=factor.device), eye
    scaled = factor.to(torch.float32 if single else torch.float64) / size
    if rank is not None and is_large(len(factor)) and 2 * rank < len(factor):
        values, vectors = _in_its_range(scaled, rank)
        return values.double().clamp_min(0) * size, vectors
    try:
        values, vectors = torch.linalg.eigh(scaled)
    except RuntimeError:  # torch's LinAlgError is one
        if not single:
            raise
        # The same decomposition, where single precision did not converge.
        values, vectors = torch.linalg.eigh(scaled.double())
        vectors = vectors.float()
    return values.double().clamp_min(0) * size, vectors


def _in_its_range(factor: Float[Tensor, "n n"], rank: int) -> tuple[Float[Tensor, "n"], Float[Tensor, "n n"]]:
    """The eigenvectors of a matrix of low rank: random combinations of its columns span its range, a QR the rest."""
    n = len(factor)
    probes = torch.randn(n, rank, generator=torch.Generator().manual_seed(n)).to(factor)
    # Twice: directions of small eigenvalues are not lost in the rounding of large ones.
    near = torch.linalg.qr(factor @ probes).Q
    basis = torch.linalg.qr(factor @ near, mode="complete").Q
    span = basis[:, :rank]
    small = span.mT @ (factor @ span)
    values, turn = torch.linalg.eigh((small + small.mT).double() / 2)
    vectors = torch.cat((basis[:, rank:], span @ turn.to(span)), 1)
    return torch.cat((values.new_zeros(n - rank), values)), vectors
