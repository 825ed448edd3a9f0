"""Checks of input, and decompositions: each error says which matrix, what was found, and what to do.

Small factors are decomposed in float64, large ones in their own precision.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.errors import NotFinite, NotPositiveDefinite, NotReal, NotSquare, NotSymmetric

LARGE = 1024
"""Sides from which a factor in float32 is decomposed, and its frame kept, in float32: half the memory, a third of the time.

Its eigenvalues are then good to about 10⁻⁷ of the largest, which is what the rounding of its entries left of them."""


def real(x: Tensor, name: str) -> None:
    if not x.is_floating_point():
        raise NotReal(f"{name} has dtype {x.dtype}: convert it with .double() first.")


def finite(x: Tensor, name: str) -> None:
    real(x, name)
    # The sum is finite only if every entry is (or on overflow, which the exact look below clears up),
    # and unlike isfinite() it allocates nothing.
    if not torch.isfinite(x.sum()):
        bad = ~torch.isfinite(x)
        if bad.any():
            first = tuple(bad.nonzero()[0].tolist())
            raise NotFinite(
                f"{name} has {int(bad.sum())} entries that are NaN or infinite, the first at {first}: "
                "look for a diverged loss or an overflow in half precision upstream."
            )


def symmetric(x: Tensor, name: str) -> None:
    """Square, finite, and equal to its transpose up to the rounding of its own precision."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] == 0:
        raise NotSquare(f"{name} has shape {tuple(x.shape)}: a (non-empty) square matrix is needed.")
    finite(x, name)
    if x.shape[-1] == 1 or x.numel() == 0:
        return
    if x.ndim == 2 and is_large(len(x)) and looks_symmetric(x):
        return
    off = (x - x.mT).abs().amax((-2, -1))
    allowed = 10 * max(100, x.shape[-1]) * torch.finfo(x.dtype).eps * x.abs().amax((-2, -1))
    if (off > allowed).any():
        worst = float((off / x.abs().amax((-2, -1)).clamp_min(torch.finfo(x.dtype).tiny)).max())
        raise NotSymmetric(
            f"{name} differs from its transpose by up to {worst:.1e} of its largest entry: rounding does not "
            "explain that. Pass (X + X.mT) / 2 if the asymmetry is meant to be dropped."
        )


def looks_symmetric(x: Float[Tensor, "n n"]) -> bool:
    """Whether random directions see no difference between a large matrix and its transpose, beyond rounding.

    Four of them find any difference, at n² instead of a second matrix in memory.
    """
    probes = torch.randint(0, 2, (len(x), 4), device=x.device).to(x.dtype).mul_(2).sub_(1)
    low, high = torch.aminmax(x)
    largest = max(-float(low), float(high))
    if not math.isfinite(largest):
        return False
    allowed = 10 * max(100, len(x)) * torch.finfo(x.dtype).eps * largest
    return float((x @ probes - x.mT @ probes).abs().max()) <= allowed


def cholesky(x: Float[Tensor, "*b n n"], name: str) -> Float[Tensor, "*b n n"]:
    """The lower Cholesky factor in float64, or an error with the smallest and the largest eigenvalue."""
    x = x.double()
    factor, info = torch.linalg.cholesky_ex(x)
    # A pivot can also come out positive and meaningless (NaN passes no comparison inside LAPACK).
    if bool((info == 0).all()) and bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all()):
        return factor
    values = torch.linalg.eigvalsh(x)
    raise NotPositiveDefinite(
        f"{name} ({x.shape[-1]}×{x.shape[-1]}) is not positive definite: its eigenvalues reach from "
        f"{float(values.min()):.2e} to {float(values.max()):.2e}. Add a prior precision, "
        "or ask for a jitter with .jittered(1e-8)."
    )


def positive(x: Tensor, name: str) -> None:
    if not bool((x > 0).all()):
        raise NotPositiveDefinite(
            f"{name} has the eigenvalue {float(x.min()):.2e}, and all must be positive: add a prior precision, "
            "or ask for a jitter with .jittered(1e-8)."
        )


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
