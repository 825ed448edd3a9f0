"""How far inputs lie from known inputs in one layer's features: six scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from posterity.novelty.whitening import Whitening

NEIGHBOURS = 5
METRICS = ("plain", "unit", "whitened")
"""Features as they are, scaled to unit length, and scaled to unit length and whitened."""
FORMS = ("distance", "relative")
"""The mean distance to the nearest known inputs, and the same divided by the distance that these have among themselves."""
ROWS_AT_ONCE = 2**22
"""Numbers in memory at a time."""


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Known inputs of one layer, ready to be compared with.

    A relative distance does not confuse an input in a sparse region of what is known with one outside of it (the local outlier
    factor of Breunig et al., 2000). No metric and no form is best everywhere; study unknown-inputs has all of them.
    Distances are computed in single precision: they are ranked, not added up, and known inputs are scored the same way.
    """

    mean: Float[Tensor, "d"]
    centred: Float[Tensor, "n d"]
    lengths: Float[Tensor, "n"]
    whitening: Whitening
    white: Float[Tensor, "n _"]
    own: Float[Tensor, "3 n"]
    """Mean distance of each known row to its nearest other ones, by metric."""
    _squares: Float[Tensor, "n"] = field(init=False, repr=False)
    _along: Float[Tensor, "n"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # What distances need of the known rows alone: of one new row a pass over all of them is most of the time. Not later:
        # what is computed while a network is exported is no number that could be kept.
        object.__setattr__(self, "_squares", self.centred.square().sum(1))
        object.__setattr__(self, "_along", self.centred @ self.mean + self.mean.square().sum())

    @classmethod
    def of(cls, rows: Float[Tensor, "n d"]) -> Neighbourhood:
        unit = normalize(rows.double())
        mean = rows.double().mean(0)
        whitening = Whitening.of(unit)
        bare = cls(
            mean.float(),
            (rows.double() - mean).float(),
            rows.double().norm(dim=1).float(),
            whitening.float(),
            whitening(unit).float(),
            torch.ones(3, len(rows)),
        )
        if len(rows) < 2:
            return bare
        apart = [d.fill_diagonal_(torch.inf) for d in bare._distances(rows.float())]
        own = torch.stack([d.topk(min(NEIGHBOURS, len(rows) - 1), largest=False).values.mean(1) for d in apart])
        # Rows that occur many times over have no distance of their own: the smallest that is one stands in.
        least = torch.where(own > 0, own, torch.inf).min(1, keepdim=True).values
        own = torch.maximum(own, torch.where(least.isfinite(), least, 1.0))
        return cls(bare.mean, bare.centred, bare.lengths, bare.whitening, bare.white, own)

    @property
    def width(self) -> int:
        return self.centred.shape[1]

    def scores(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m 6"]:
        """One column a metric and form, in the order of `names`; memory does not grow with m but for the result."""
        if torch.compiler.is_compiling():  # an exported network takes any number of rows at once
            return self._scores(rows.float()).double()
        parts = rows.split(max(ROWS_AT_ONCE // max(self.centred.shape), 1))
        found = [self._scores(part.float()).double() for part in parts]
        return torch.cat(found) if len(rows) else torch.empty(0, 6, dtype=torch.float64)

    def _scores(self, rows: Tensor) -> Tensor:
        columns = []
        for distances, own in zip(self._distances(rows), self.own, strict=True):
            near = distances.topk(min(NEIGHBOURS, len(own)), largest=False)
            distance = near.values.mean(1)
            columns += [distance, distance / own[near.indices].mean(1)]
        return torch.stack(columns, 1)

    def _distances(self, rows: Tensor) -> Iterator[Tensor]:
        """To every known row, metric by metric. One product of matrices serves the first two."""
        centred = rows - self.mean
        products = centred @ self.centred.T
        squares = centred.square().sum(1, keepdim=True) + self._squares - 2 * products
        yield squares.clamp_min(0).sqrt()
        # The products of the rows themselves: those of the centred ones, and what the mean adds.
        products = products + (centred @ self.mean)[:, None] + self._along
        lengths = rows.norm(dim=1, keepdim=True)
        cosines = products / (lengths * self.lengths).clamp_min(torch.finfo(torch.float32).tiny)
        yield ((lengths > 0).float() + (self.lengths > 0).float() - 2 * cosines).clamp_min(0).sqrt()
        white = self.whitening(rows / lengths.clamp_min(torch.finfo(torch.float32).tiny))
        # The same way for any number of rows.
        yield torch.cdist(white, self.white, compute_mode="use_mm_for_euclid_dist")


def names(layer: str) -> tuple[str, ...]:
    """What the six scores of a layer are called."""
    return tuple(f"{layer}: {metric} {form}" for metric in METRICS for form in FORMS)
