"""How features are seen: scaled to unit length, or column by column; and the network that a head on them is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

Kind = Literal["unit", "columns"]
KINDS: tuple[Kind, ...] = ("unit", "columns")
NEGLIGIBLE = 1e-9
FEW = 5
"""Rows that say as much of a column's deviation as the other columns do (study heads, sets for settling)."""
WIDEST = 3.0
"""Deviations from the mean beyond which a value is cut (likewise)."""


@dataclass(frozen=True, eq=False)
class View:
    """A map of features column by column, after rows were scaled to unit length where `kind` says so.

    Rows that made the view have a mean squared length of 1, so that a prior's strength means the same everywhere.
    """

    kind: Kind
    centre: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]
    limit: Float[Tensor, " d"]
    """Values beyond it are cut: few rows may know little of a column's range."""

    @staticmethod
    def of(kind: Kind, features: Float[Tensor, "n d"]) -> View:
        """The view that these rows make. Constant columns count for nothing."""
        rows = unit(features) if kind == "unit" else features
        centre = rows.mean(0)
        centred = rows - centre
        scale, limit = torch.ones_like(centre), torch.full_like(centre, torch.inf)
        if kind == "columns":
            deviation = centred.square().mean(0).sqrt()
            varies = deviation > NEGLIGIBLE * rows.abs().amax(0).clamp_min(1e-300)
            logs = deviation.clamp_min(1e-300).log()
            share = (len(rows) - 1) / (len(rows) - 1 + FEW)
            shrunk = share * logs + (1 - share) * logs[varies].sum() / max(1, int(varies.sum()))
            scale = torch.where(varies, (-shrunk).exp(), 0.0)
            limit = WIDEST * scale * deviation
        length = float((centred * scale).clamp(-limit, limit).square().sum(1).mean().sqrt())
        factor = 1 / length if length > 0 else 0.0
        return View(kind, centre, scale * factor, limit * factor if factor else torch.zeros_like(limit))

    def __call__(self, features: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        rows = unit(features) if self.kind == "unit" else features
        return ((rows - self.centre) * self.scale).clamp(-self.limit, self.limit)


@dataclass(frozen=True, eq=False)
class Axes:
    """Rows in the coordinates of their own principal axes: all that a head with an isotropic prior depends on."""

    vectors: Float[Tensor, "d r"]
    values: Float[Tensor, " r"]
    """Squared lengths along the axes, summed over the rows."""

    @staticmethod
    def of(rows: Float[Tensor, "n d"]) -> Axes:
        """By the smaller of the two Gram matrices: O(n d min(n, d)), exact."""
        n, d = rows.shape
        values, vectors = torch.linalg.eigh(rows @ rows.mT if n < d else rows.mT @ rows)
        kept = values > 1e-10 * values.amax().clamp_min(1e-300)
        values, vectors = values[kept], vectors[:, kept]
        return Axes((rows.mT @ vectors) / values.sqrt() if n < d else vectors, values)


def unit(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows of length one; a row of zeros stays."""
    return features / features.norm(dim=1, keepdim=True).clamp_min(1e-300)


class FeatureNetwork(nn.Module):
    """Features scaled to unit length, then one linear layer: what the posterior's draws and certificates speak of."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, outputs)

    def forward(self, features: Tensor) -> Tensor:
        """Logits, or a number."""
        found: Tensor = self.linear(unit(features))
        return found
