"""The examples that certify: held in memory, told apart, and counted once each."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, WeightedRandomSampler

from posterity.curvature.batches import Batch, Data, Workers, batches, check_data, is_sharded
from posterity.curvature.hashes import Hashes, batch_hashes, copies, data_fingerprint
from posterity.curvature.older_hashes import OlderHashes, older_batch_hashes
from posterity.curvature.provenance import Provenance
from posterity.errors import BadData, NoData


@dataclass(frozen=True, eq=False)
class Examples:
    """All of the data, in every process: an empirical risk is that of all examples, not of a worker's share."""

    batches: list[Batch]
    hashes: Hashes
    """In the order of the batches."""
    groups: Tensor = field(repr=False)
    """A number for each example, the same for copies of one."""

    @classmethod
    def of(cls, data: Data, batch_size: int = 256) -> Examples:
        """Read the data, and refuse what would not be a sample of distinct examples that can be told apart."""
        check_data(data)
        sampler = data.sampler if isinstance(data, DataLoader) else None
        if isinstance(sampler, WeightedRandomSampler) or (isinstance(sampler, RandomSampler) and sampler.replacement):
            raise BadData(
                f"the DataLoader draws its examples with replacement ({type(sampler).__name__}): some would count more than "
                "once. Give its dataset."
            )
        if is_sharded(data) and Workers.here().size > 1:
            raise BadData(
                "each process sees a part of the data only: give the data itself, not a loader that deals it out."
            )
        held = list(batches(data, batch_size, Workers()))
        if not held:
            raise NoData("there is no data to estimate a risk from.")
        hashes = torch.cat([batch_hashes(batch) for batch in held])
        told = Provenance.read(data, hashes)
        if not told.is_known:
            raise BadData(
                f"{told.gaps[0]}: what certifies must be the same each time it is read. Give tensors, or a dataset without "
                "random transforms."
            )
        return cls(held, hashes, copies(hashes))

    @property
    def count(self) -> int:
        return len(self.hashes)

    @property
    def n(self) -> int:
        """How many are distinct."""
        return int(self.groups.max()) + 1

    @property
    def fingerprint(self) -> str:
        return data_fingerprint(self.hashes)

    def older(self) -> OlderHashes:
        """Hashes as older files have them."""
        return torch.cat([older_batch_hashes(batch) for batch in self.batches])

    def readings(self) -> list[list[Batch]]:
        """All examples, and where some are copies, each once as well: a bound is computed for both, and the larger holds."""
        if self.n == self.count:
            return [self.batches]
        first = torch.zeros(self.count, dtype=torch.bool)
        # The last write wins: backwards, so that the first copy of each stays.
        place = torch.empty(self.n, dtype=torch.int64)
        place[self.groups.flip(0)] = torch.arange(self.count - 1, -1, -1)
        first[place] = True
        kept, start = [], 0
        for batch in self.batches:
            rows = first[start : start + batch.count].nonzero().squeeze(1)
            start += batch.count
            if len(rows):
                kept.append(batch.rows(rows))
        return [self.batches, kept]
