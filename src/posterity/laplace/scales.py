"""α, β, τ: how much the prior counts, how much the data, and how warm the result is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from posterity.curvature.provenance import Provenance
from posterity.errors import BlockMismatch

PerBlock = float | Mapping[str, float]


@dataclass(frozen=True)
class Scales:
    """The posterior precision is (β · curvature + α · prior) / τ. One number for all blocks, or one for each.

    (cα, cβ, cτ) gives the same posterior for every c: with α = τ = 1 nothing is lost.
    """

    alpha: PerBlock = 1.0
    beta: PerBlock = 1.0
    temperature: PerBlock = 1.0
    provenance: Provenance = field(default_factory=Provenance.none, repr=False, compare=False)
    """What they were tuned with; nothing, if they were given."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "temperature"):
            value = getattr(self, name)
            for number in value.values() if isinstance(value, Mapping) else (value,):
                lowest = 0 if name == "beta" else math.nextafter(0, 1)
                if not (lowest <= number < math.inf):
                    raise ValueError(
                        f"{name} must be {'non-negative' if name == 'beta' else 'positive'} and finite, not {number}"
                    )

    def of(self, block: str) -> tuple[float, float, float]:
        """(α, β, τ) of one block."""
        return tuple(self._one(name, block) for name in ("alpha", "beta", "temperature"))  # type: ignore[return-value]

    def _one(self, name: str, block: str) -> float:
        value: PerBlock = getattr(self, name)
        if not isinstance(value, Mapping):
            return value
        if block not in value:
            raise BlockMismatch(f'{name} is given per block and not for "{block}": it has {sorted(value)}.')
        return value[block]
