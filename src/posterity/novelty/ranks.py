"""Where a number lies among those of known inputs: p-values that go on beyond the largest of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

KEPT = 512
"""Of more numbers, so many quantiles are kept."""
TAIL = 0.1
"""The share of the largest numbers from which the tail's rate is estimated."""
FARTHEST = 1e6
"""The largest −ln p: further away is no more of a difference."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """Sorted numbers of known inputs that were left out, and how many there were; of one score, or of several in rows."""

    values: Float[Tensor, "*scores kept"]
    count: int
    _start: Float[Tensor, "*scores 1"] = field(init=False, repr=False)
    """Where the tail starts."""
    _reach: Float[Tensor, "*scores 1"] = field(init=False, repr=False)
    """The mean excess of the largest numbers over where the tail starts."""
    _start_nats: Float[Tensor, "*scores 1"] = field(init=False, repr=False)
    """−ln p there."""

    def __post_init__(self) -> None:
        kept, tail = self.values.shape[-1], self._tail
        if not kept or not self.count:
            return
        start = self.values[..., kept - 1 - tail : kept - tail]
        largest = self.values[..., kept - tail :] if tail else start
        excess = (largest - start).mean(-1, keepdim=True)
        # Numbers that are all alike have no spread: a hair of their size is one.
        reach = torch.maximum(excess, self.values.abs().amax(-1, keepdim=True) * 1e-6 + 1e-12)
        object.__setattr__(self, "_start", start)
        object.__setattr__(self, "_reach", reach)
        object.__setattr__(self, "_start_nats", -self._inside(start).log())

    @classmethod
    def of(cls, values: Float[Tensor, "n"]) -> Ranks:
        ordered = _rounded(values).sort().values
        if len(ordered) > KEPT:
            ordered = torch.quantile(ordered, torch.linspace(0, 1, KEPT, dtype=torch.float64, device=ordered.device))
        return cls(_rounded(ordered), len(values))

    @classmethod
    def together(cls, several: Sequence[Ranks]) -> Ranks:
        """Ranks of several scores of the same inputs, a row each."""
        return cls(torch.stack([one.values for one in several]), several[0].count)

    def p(self, x: Float[Tensor, "*scores m"]) -> Float[Tensor, "*scores m"]:
        """The share of known inputs with a number this large, uniform on new known ones.

        Ranks are interpolated, so that every rate can be had from few numbers. Beyond the largest of n numbers p falls from
        1/(n + 1) like one over the distance: order is kept, and nothing is claimed beyond what n inputs can show.
        """
        if not self.count:
            return torch.ones_like(x, dtype=torch.float64)
        x = _rounded(x)
        return self._inside(x) / (1 + ((x - self.values[..., -1:]) / self._reach).clamp(0, FARTHEST))

    def nats(self, x: Float[Tensor, "*scores m"], *, among: bool = False) -> Float[Tensor, "*scores m"]:
        """−ln p, for adding up: beyond the upper tenth it grows as that of an exponential tail.

        A number belongs to the tail that it is measured by: one of the known ones (`among`) does, so a new one has to, or the
        largest known ones would look farther out than new ones that are as large.
        """
        if not self.count:
            return torch.zeros_like(x, dtype=torch.float64)
        x, start, reach = _rounded(x), self._start, self._reach
        excess = (x - start).clamp_min(0)
        if not among:
            tail = self._tail * self.count / self.values.shape[-1]
            reach = (tail * reach + excess) / (tail + 1)
        return torch.where(x > start, excess / reach + self._start_nats, -self._inside(x).log())

    def _inside(self, x: Tensor) -> Tensor:
        """1 − interpolated rank / (n + 1); equal numbers have the mean of their ranks."""
        n, kept = self.count, self.values.shape[-1]
        if torch.compiler.is_compiling():  # ONNX has no binary search
            below, x_each = self.values[..., None, :], x[..., None]
            low, high = (below < x_each).sum(-1), (below <= x_each).sum(-1)
        else:
            low, high = (torch.searchsorted(self.values, x.contiguous(), right=right) for right in (False, True))
        left = self.values.gather(-1, (low - 1).clamp_min(0))
        right = self.values.gather(-1, high.clamp_max(kept - 1))
        gap = (right - left).clamp_min(torch.finfo(torch.float64).tiny)
        between = torch.where((low > 0) & (high < kept), ((x - left) / gap).clamp(0, 1), 0.5)
        # Ties: the mean of the places they take. Else: low == high, between the places low and low + 1.
        place = torch.where(high > low, (low + high + 1) / 2, low + between).clamp(1, kept)
        place = torch.where((high == low) & (low == 0), 0.5, place)
        rank = 1 + (place - 1) * ((n - 1) / (kept - 1)) if kept > 1 else place
        return (1 - rank / (n + 1)).clamp(1 / (n + 1), 1.0)

    @property
    def _tail(self) -> int:
        kept = self.values.shape[-1]
        return min(max(round(TAIL * kept), 3), kept - 1)


def _rounded(x: Tensor) -> Tensor:
    """As a file rounds numbers, so that nothing changes by being stored, and what is equal stays equal."""
    return x.float().double()
