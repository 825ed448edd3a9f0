"""Rows of a layer turned into a frame before they are multiplied to gradients: the same result, often many times cheaper."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from posterity.blocks import Block, Call
from posterity.curvature.base import positions


def rows_are_cheaper(block: Block, calls: list[Call], outputs: int) -> bool:
    """Whether turning input and gradient rows takes fewer multiplications than turning every gradient.

    A gradient is Σ_t s_t a_tᵀ over t positions. Turned as a matrix it costs out · inp · (out + inp) for every output; the rows
    cost t · out² for every output and t · inp² once for all of them. Elementwise layers have no rows.
    """
    if not block.layer.separable:
        return False
    (out, inp), t = block.shape, positions(block, calls)
    by_rows = outputs * t * (out * out + out * inp) + t * inp * inp
    by_gradients = outputs * (t * out * inp + out * inp * (out + inp))
    return by_rows < by_gradients


def turned_rows(rows: Float[Tensor, "*n side"], basis: Float[Tensor, "side side"] | None) -> Float[Tensor, "*n side"]:
    """Rows in the coordinates of a basis (its columns), in float64; products with a basis in float32 run in float32."""
    if basis is None:
        return rows.double()
    return (rows.to(basis.dtype) @ basis).double()
