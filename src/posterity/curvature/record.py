"""What one pass over the data leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from posterity.algebra import Matrix
from posterity.curvature.base import Estimator
from posterity.curvature.likelihoods import Likelihood
from posterity.curvature.provenance import Provenance


@dataclass(frozen=True)
class Curvature:
    """A matrix per block, summed over the data, with the summed negative log-likelihood (nats) and the number of examples."""

    blocks: Mapping[str, Matrix]
    nll: float
    count: int
    estimator: Estimator
    likelihood: Likelihood
    provenance: Provenance = field(default_factory=lambda: Provenance.unknown("curvature made by hand"))
    """What the curvature depends on: the examples, and what the network's weights had seen."""
    at: str = ""
    """A digest of the blocks' weights at which it was estimated."""

    def __getitem__(self, block: str) -> Matrix:
        return self.blocks[block]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Curvature:
        """The same on another device, or in another precision."""
        return replace(self, blocks={name: matrix.to(device, dtype) for name, matrix in self.blocks.items()})

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n}: {type(m).__name__} {m.shape[0]}×{m.shape[1]}" for n, m in self.blocks.items())
        return f"Curvature({self.estimator}, {self.count} examples, {self.nll:.6g} nats, {{{shapes}}})"
