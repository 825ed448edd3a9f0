"""The examples that certify: read once, in an order of their own, and counted as what is independent among them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset, WeightedRandomSampler

from posterity.checks import check_groups
from posterity.data.batches import Batch, Data, Workers, batches, check_data, is_pair, is_sharded
from posterity.data.dependence import dependence
from posterity.data.hashes import Hashes, batch_hashes, copies, data_fingerprint, whole_of
from posterity.data.near_copies import near_copies, repeats_by_chance, scaled
from posterity.data.provenance import Provenance
from posterity.errors import BadData, DependentExamples, NoData
from posterity.pacbayes.bounds import count_bound

LABELS = (
    "no label of these examples was used before: not to select columns, to encode targets, to train the features, nor to pick "
    "the examples. That cannot be seen"
)


@dataclass(frozen=True, eq=False)
class Weighting:
    """One way to count: some of the examples, and how much each weighs in a mean. Weights sum to one."""

    batches: list[Batch]
    weights: Float64[Tensor, " n"]
    grouped: bool = False
    """Whether what is independent is a group: its mean error is a number in [0, 1], and no throw of a coin."""

    def mean(self, values: Tensor) -> float:
        """The mean of one number for each example."""
        return float(self.weights @ values.double().cpu())

    def pieces(self) -> list[tuple[Batch, Tensor]]:
        """Every batch with its weights."""
        return list(zip(self.batches, self.weights.split([b.count for b in self.batches]), strict=True))


@dataclass(frozen=True, eq=False)
class CertificateData:
    """All of the data, in every process: an empirical risk is that of all examples, not of a worker's share.

    They are sorted by what they are, so that neither their order nor the batches of a loader leave a trace in the draws.
    """

    batches: list[Batch]
    hashes: Hashes
    """In the order of the batches."""
    units: Int[Tensor, " n"] = field(repr=False)
    """A number for each example, the same for those that count as one: copies, near copies, or a group."""
    order: Int[Tensor, " n"] = field(repr=False)
    """Where each example stands in the data."""
    grouped: bool = False
    """Whether the user has said what belongs together."""
    few_values: bool = False
    """Whether equal rows are no sign of copies: a table of few values."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, data: Data, batch_size: int = 256, groups: Tensor | None = None, *, look: bool = True
    ) -> CertificateData:
        """Read the data, and refuse what would not be a sample of distinct examples that can be distinguished.

        With `look`, near copies count once, and an order that betrays dependence is warned of.
        """
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
        data = whole_of(data)
        held = list(batches(data, batch_size, Workers()))
        if not held:
            raise NoData("there is no data to estimate a risk from.")
        hashes = torch.cat([batch_hashes(batch) for batch in held])
        provenance = Provenance.read(data, hashes)
        if not provenance.is_known:
            raise BadData(
                f"{provenance.gaps[0]}: what certifies must be the same each time it is read. Give tensors, or a dataset without "
                "random transforms."
            )
        check_groups(groups, len(hashes))
        if groups is not None and not isinstance(data, Dataset) and not is_pair(data):
            again = torch.cat([batch_hashes(batch) for batch in batches(data, batch_size, Workers())])
            if not torch.equal(again, hashes):
                raise BadData(
                    f"groups are in the order of the examples, and this {type(data).__name__} has them in another order at each "
                    "reading: give its dataset, or a DataLoader with shuffle=False."
                )
        even = len({tuple(x.shape[1:] for x in batch.tensors()) for batch in held}) == 1
        units, few_values, notes = _independent(held, hashes, groups, look and even)
        order = torch.arange(len(hashes))
        if even:
            whole = Batch.joined(held)
            targets = whole.targets.detach().cpu().reshape(whole.count, -1)
            order = torch.from_numpy(np.lexsort((*targets.numpy().T, *hashes.numpy().T[::-1])))
            held = [whole.rows(rows) for rows in order.split(batch_size)]
        # Numbered by where they come first: the order of the data leaves no trace in the numbers either.
        units = first_of(units[order]).argsort().argsort()[units[order]]
        return cls(held, hashes[order], units, order, groups is not None, few_values, notes)

    @property
    def count(self) -> int:
        return len(self.hashes)

    @property
    def n(self) -> int:
        """How many are independent: groups, or examples of which copies count once."""
        return int(self.units.max()) + 1

    @property
    def fingerprint(self) -> str:
        return data_fingerprint(self.hashes)

    @property
    def assumes(self) -> tuple[str, ...]:
        """What the bound takes for granted."""
        if self.grouped:
            what = (
                f"independent groups ({self.n:,} groups of {self.count:,} examples), of none of which the prior has seen "
                "anything. The error is that on a new group, each counting alike"
            )
        else:
            what = "independent examples: what belongs together (windows of a recording, rows of a person) is given as groups"
        return what, "new examples come from where these came from", LABELS

    def bound(self, wrong: Bool[Tensor, " n"], delta: float) -> float:
        """What the error of one predictor is at most, by its errors in the data's own order."""
        error, n = error_by_unit(wrong[self.order].double(), self.units, self.grouped)
        return count_bound(error, n, delta, grouped=self.grouped or n < self.count)

    def readings(self) -> list[Weighting]:
        """All examples, groups counting alike; where some are copies each once as well: the larger of both bounds holds."""
        if self.grouped:
            sizes = self.units.bincount(minlength=self.n).double()
            return [Weighting(self.batches, 1 / (self.n * sizes[self.units]), grouped=True)]
        every = Weighting(self.batches, torch.full((self.count,), 1 / self.count, dtype=torch.float64))
        if self.n == self.count:
            return [every]
        first = torch.zeros(self.count, dtype=torch.bool)
        first[first_of(self.units)] = True
        kept, start = [], 0
        for batch in self.batches:
            rows = first[start : start + batch.count].nonzero().squeeze(1)
            start += batch.count
            if len(rows):
                kept.append(batch.rows(rows))
        return [every, Weighting(kept, torch.full((self.n,), 1 / self.n, dtype=torch.float64))]


def error_by_unit(wrong: Float64[Tensor, " n"], units: Int[Tensor, " n"], given: bool) -> tuple[float, int]:
    """The mean error of units, each counting alike, and their number.

    Copies that were found and not given as groups may count once each, or as often as they come: the larger error holds.
    """
    units = units.unique(return_inverse=True)[1]
    each = torch.zeros(int(units.max()) + 1).double().scatter_reduce(0, units, wrong, "mean", include_self=False)
    return max(float(each.mean()), 0.0 if given else float(wrong.mean())), len(each)


def rows_of(data: Data, rows: Tensor) -> Any:
    """Some of the examples, of a kind with the data."""
    if is_pair(data):
        return tuple(x[rows.to(x.device)] for x in data)
    if isinstance(data, DataLoader):
        some = Subset(data.dataset, rows.tolist())
        return DataLoader(some, data.batch_size, num_workers=data.num_workers, collate_fn=data.collate_fn)
    if isinstance(data, Iterable) and not isinstance(data, Dataset):
        whole = Batch.joined(list(batches(data, 1, Workers()))).rows(rows)
        return [(whole.positional[0] if whole.positional else whole.named, whole.targets)]
    return Subset(data, rows.tolist())


def first_of(units: Int[Tensor, " n"]) -> Int[Tensor, " k"]:
    """Where each unit appears first."""
    place = torch.empty(int(units.max()) + 1, dtype=torch.int64)
    # The last write wins: backwards, so that the first stays.
    place[units.flip(0)] = torch.arange(len(units) - 1, -1, -1)
    return place


def joined(a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """What belongs together by either, numbered 0, 1, …"""
    label, before = torch.arange(len(a)), None
    while before is None or not torch.equal(label, before):
        before = label
        for units in (a.unique(return_inverse=True)[1], b.unique(return_inverse=True)[1]):
            least = torch.full((int(units.max()) + 1,), len(a)).scatter_reduce(0, units, label, "amin")
            label = least[units]
    return label.unique(return_inverse=True)[1]


def _independent(
    held: list[Batch], hashes: Hashes, groups: Tensor | None, look: bool
) -> tuple[Int[Tensor, " n"], bool, tuple[str, ...]]:
    """What counts as one, whether it is a table of few values, and what is to be said of both."""
    units, n, few_values = copies(hashes), len(hashes), False
    inputs, notes = [], []
    targets = torch.cat([batch.targets.detach().cpu() for batch in held])
    if look:
        inputs = [torch.cat(parts) for parts in zip(*(batch.tensors() for batch in held), strict=True)]
    if look and int(units.max()) + 1 < n:
        few_values = repeats_by_chance(torch.cat([x.reshape(n, -1).double() for x in inputs], 1), targets)
        if few_values:
            notes.append(
                f"{n:,} rows show {int(units.max()) + 1:,} different values: a table of few values, in which equal rows are no "
                "sign of copies. Each row counts"
            )
            units = torch.arange(n)
    if look and not few_values:
        distinct = int(units.max()) + 1
        features = scaled(inputs)
        units = joined(units, near_copies(features, targets))
        if (near := int(units.max()) + 1) < distinct:
            notes.append(
                f"{distinct:,} different examples are {near:,} families of near copies: each family counts once"
            )
    if groups is not None:
        given = groups.detach().cpu().unique(return_inverse=True)[1]
        both = given if few_values else joined(given, units)
        if int(both.max()) < int(given.max()):
            notes.append(f"{int(given.max()) + 1:,} groups share copies: those that do count as one")
        units = both
    if look and not few_values:
        # One example of each unit: where groups are what is independent, their order shows nothing.
        first, what = first_of(units).sort().values, "examples" if groups is None else "groups"
        found = dependence(features[first], targets[first])
        if found is not None:
            notes.append(
                f"{found}: the bound holds for independent {what} only, give groups= of all that belongs together"
            )
            warnings.warn(
                f"{found}. A certificate for independent {what} may not hold for new recordings: give groups=, one number for "
                "each example, the same for all that belongs together.",
                DependentExamples,
                stacklevel=4,
            )
    return units, few_values, tuple(notes)
