"""Large symmetric factors by their lower triangle: half the bytes, and symmetric again however they were changed."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

LEAF = 256
"""Rows of a piece that is mirrored whole."""


def packed(x: Float[Tensor, "n n"]) -> Float[Tensor, "half"]:
    """The rows of the lower triangle, one behind the other."""
    n = len(x)
    result = x.new_empty(n * (n + 1) // 2)
    for i in range(n):
        start = i * (i + 1) // 2
        result[start : start + i + 1] = x[i, : i + 1]
    return result


def unpacked(half: Float[Tensor, "half"], n: int) -> Float[Tensor, "n n"]:
    """The symmetric matrix again."""
    x = half.new_empty(n, n)
    for i in range(n):
        start = i * (i + 1) // 2
        x[i, : i + 1] = half[start : start + i + 1]
    for start in range(0, n, LEAF):
        stop = min(n, start + LEAF)
        x[start:stop, stop:] = x[stop:, start:stop].T
        own = x[start:stop, start:stop]
        own.copy_(own.tril() + own.tril(-1).T)
    return x


def packed_size(n: int) -> int:
    """Entries of the lower triangle."""
    return n * (n + 1) // 2
