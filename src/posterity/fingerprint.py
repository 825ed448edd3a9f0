"""A few hexadecimal digits for some values: equal values have equal fingerprints, on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def fingerprint(parts: Iterable[str | Tensor], digits: int = 32) -> str:
    """The first hexadecimal digits of the SHA-256 of texts and tensors, one after the other.

    Of a tensor its numbers count, as float64: not where it is stored, nor its dtype, nor its shape. Put these into a text
    where they matter.

    Args:
        parts: texts, and tensors of any dtype, shape and device.
        digits: how many, at most 64. Four bits each.
    Returns:
        A string of that many digits.

    Example:
        >>> fingerprint(["weight (2, 3)", torch.ones(2, 3)], digits=16)
    """
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode())
        else:
            values = part.detach().cpu()
            values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
            found.update(values.double().contiguous().flatten().numpy().astype("<f8", copy=False).data)
    return found.hexdigest()[:digits]
