"""NaN and infinities, found and counted where they come in."""

from __future__ import annotations

import torch
from torch import Tensor

from posterity.errors import NotFinite


def not_finite(values: Tensor, what: str = "the inputs") -> str | None:
    """A sentence that says how many numbers are NaN or infinite, and where the first one is; None where all are finite."""
    if not (values.is_floating_point() or values.is_complex()) or not values.numel() or values.is_quantized:
        return None
    # A sum is finite in almost every case, in one pass and without a mask as large as the data.
    if bool(torch.isfinite(values.sum(dtype=torch.promote_types(values.dtype, torch.float64)))):
        return None
    bad = ~torch.isfinite(values)
    count = int(bad.sum())
    if not count:
        return None
    rows = bad.reshape(len(values), -1).any(1) if values.ndim else bad.reshape(1)
    kind = "NaN" if bool(torch.isnan(values).any()) else "infinite"
    return (
        f"{what} hold {count:,} {kind} number{'s' if count > 1 else ''} in {int(rows.sum()):,} of {len(rows):,} examples, the "
        f"first in example {int(rows.nonzero()[0])}: drop these examples or fill the numbers in."
    )


def check_finite(values: Tensor, what: str = "the inputs") -> None:
    """Refuse numbers that are NaN or infinite.

    Raises:
        NotFinite: with how many there are, and where the first one is.
    """
    problem = not_finite(values, what)
    if problem:
        raise NotFinite(problem)
