"""What a Gaussian takes in memory."""

from __future__ import annotations

from posterity.gaussian import Gaussian
from posterity.gaussian.parts import take_apart


def gaussian_bytes(gaussian: Gaussian) -> int:
    """Bytes of its means and precisions, as a file would hold them."""
    total = sum(mean.numel() * mean.element_size() for mean in gaussian.mean.values())
    for matrix in gaussian.precision.values():
        total += sum(part.numel() * part.element_size() for part in take_apart(matrix)[1].values())
    return total
