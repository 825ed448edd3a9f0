"""Which rows of a table were learned from, as they were read and coarsely: rows that were rounded since are found too.

Exact hashes of inputs tell whether numbers are the same to a few ulps. A table that was written again with three decimals has no
such number. Here every row is put into cells of 1/32 of each column's standard deviation, on three grids that are shifted against
each other, and the cells are hashed: a rounded row nearly always shares its cell on one of them.

Different rows share a cell by chance too, the more often the fewer columns there are. How often is seen in the rows that were
learned from: where many of them share cells with each other (yes and no in three columns, say), a match is evidence of nothing.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from posterity.cli.reading.examples import TensorExamples
from posterity.errors import BadData

CELLS = 32
"""Of a grid, to one standard deviation of a column."""
GRIDS = 3
KEPT = 10_000
"""Rows that are remembered, evenly from all: enough to notice that a table comes again."""
LEAST, SHARE, DEVIATIONS = 5, 0.02, 5.0
"""Matches that count for nothing: so many, this share of the new rows, and what chance gives with so many deviations."""
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Hashes of rows that were learned from, (rows, grids)."""

    hashes: Hashes

    @classmethod
    def of(cls, examples: TensorExamples) -> SeenRows:
        """The record of a table's rows; other data has none, and is recognised by exact hashes."""
        found = _hashes(examples)
        return cls(found[:: max(1, -(-len(found) // KEPT))])

    def among(self, examples: TensorExamples) -> int:
        """How many of the examples are rows that were learned from, up to rounding; 0 where chance explains the matches."""
        new = _hashes(examples)
        if not len(new) or not len(self.hashes):
            return 0
        matched, chance = np.zeros(len(new), bool), np.zeros(len(self.hashes), bool)
        for mine, known in zip(new.T, self.hashes.T, strict=True):
            matched |= np.isin(mine, known)
            _, place, counts = np.unique(known, return_inverse=True, return_counts=True)
            chance |= counts[place] > 1
        found, expected = int(matched.sum()), len(new) * float(chance.mean())
        spread = np.sqrt(expected * (1 + len(new) / len(chance)))
        return found if found > LEAST + SHARE * len(new) + expected + DEVIATIONS * spread else 0

    def joined(self, other: SeenRows) -> SeenRows:
        """What was seen by either, read by the same recipe."""
        return SeenRows(np.concatenate((self.hashes, other.hashes)))

    def to_json(self) -> str:
        """The record as text."""
        return base64.b64encode(self.hashes.astype("<u8").tobytes()).decode()

    @classmethod
    def from_json(cls, text: object) -> SeenRows:
        """From text, which may come from a file of unknown origin."""
        try:
            return cls(np.frombuffer(base64.b64decode(str(text), validate=True), "<u8").reshape(-1, GRIDS))
        except ValueError as error:
            raise BadData(f"the hashes of rows that were learned from are damaged: {error}.") from None


def _hashes(examples: TensorExamples) -> Hashes:
    recipe = examples.recipe
    if not recipe.columns:
        return np.zeros((0, GRIDS), np.uint64)
    with np.errstate(over="ignore"):
        place = recipe.standardised(examples.rows.numpy()) * CELLS
        weights = np.frombuffer(hashlib.shake_256(b"posterity rows").digest(8 * place.shape[1]), "<u8") | np.uint64(1)
        grids = [np.floor(np.clip(place, -1e15, 1e15) + k / GRIDS).astype(np.int64) for k in range(GRIDS)]
        return np.stack([_mixed((grid.view(np.uint64) * weights).sum(1, dtype=np.uint64)) for grid in grids], 1)


def _mixed(x: Hashes) -> Hashes:
    """The finaliser of splitmix64: sums that are close become numbers that are not."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
