"""How 1 − confidence is spent: every choice that the certifying examples had a part in is paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

DRAWS_SHARE = 0.02
"""How much of 1 − confidence goes into estimating the Gibbs error; the bound itself takes the rest."""


@dataclass(frozen=True)
class Spending:
    """An account of 1 − confidence. A choice among K things divides it by K, and choices multiply: a union bound."""

    total: float
    payments: tuple[tuple[str, int], ...] = ()
    """What was chosen, and from how many."""

    def __post_init__(self) -> None:
        if not 0 < self.total < 1:
            raise ValueError(f"a confidence lies between 0 and 1, not {1 - self.total}")

    def paying(self, what: str, options: int) -> Spending:
        """The account after one more choice. A choice among one costs nothing and is not written down."""
        if options < 1:
            raise ValueError(f"{what}: a choice is from at least one, not {options}")
        return self if options == 1 else replace(self, payments=(*self.payments, (what, options)))

    @property
    def options(self) -> int:
        """How many combinations the union is over."""
        return math.prod(options for _, options in self.payments)

    @property
    def each(self) -> float:
        """What one combination may spend."""
        return self.total / self.options

    @property
    def bound(self) -> float:
        """δ of one combination, where draws estimate the Gibbs error."""
        return self.each * (1 - DRAWS_SHARE)

    @property
    def draws(self) -> float:
        """δ′ of one combination: what its draws may spend."""
        return self.each * DRAWS_SHARE

    def __str__(self) -> str:
        if not self.payments:
            return f"{self.total:g}, for one thing declared in advance"
        what = " × ".join(f"{options} ({what})" for what, options in self.payments)
        return f"{self.total:g} over {what}"
