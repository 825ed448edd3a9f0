"""What a Gaussian carries of known inputs, as its file holds it: `posterity.novelty` makes it, and reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from posterity.brief import brief


@dataclass(frozen=True, eq=False)
class KnownFeatures:
    """Features of known inputs, and quantiles of how left-out ones look beside them: tensors and plain values."""

    __repr__ = brief

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.words)
