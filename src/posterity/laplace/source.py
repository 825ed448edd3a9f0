"""Data as training reads it: one part to train on, in a new order every epoch, and one to watch; and what was seen of it."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)

from posterity.curvature import Data
from posterity.curvature.batches import Batch, is_pair, is_sharded
from posterity.curvature.provenance import Provenance, past_of, together
from posterity.errors import BadData, NoData
from posterity.gaussian import Gaussian


def split(data: Data, validation: float | Data | None, generator: torch.Generator) -> tuple[Data, Data | None]:
    """The data to train on and the data to watch."""
    if not isinstance(validation, float | int):
        return data, validation
    if not 0 <= validation < 1:
        raise ValueError(f"a validation share lies between 0 and 1, not {validation}")
    if not validation:
        return data, None
    indexed = data.dataset if isinstance(data, DataLoader) else data
    pair = is_pair(indexed)
    if not pair and isinstance(indexed, list) and len(indexed) > 1:
        return _by_batches(indexed, validation, generator)
    if not pair and not (_has_length(indexed) and not isinstance(indexed, IterableDataset)):
        raise BadData(
            "a share of the examples is to be held out, to stop training by, and only tensors, datasets with a length and lists "
            "of batches can be split: pass validation=other_data, or validation=0 to hold nothing out."
        )
    if isinstance(data, DataLoader) and not _plain(data):
        raise BadData(
            f"a share for validation cannot be taken from a DataLoader with a {type(data.sampler).__name__} or a batch "
            "sampler of its own, which would be lost: pass validation data instead."
        )
    total = len(indexed[0]) if pair else len(indexed)  # type: ignore[index, arg-type]
    held = round(total * validation)
    if not held:
        return data, None
    if held == total:
        raise NoData(f"a validation share of {validation} leaves none of {total} examples to train on.")
    order = torch.randperm(total, generator=generator)
    first, second = order[held:], order[:held]
    if pair:
        return tuple(x[first] for x in indexed), tuple(x[second] for x in indexed)  # type: ignore[union-attr]
    parts = [Subset(indexed, part.tolist()) for part in (first, second)]  # type: ignore[arg-type]
    if not isinstance(data, DataLoader):
        return parts[0], parts[1]
    rest: dict[str, Any] = {
        "batch_size": data.batch_size,
        "num_workers": data.num_workers,
        "collate_fn": data.collate_fn,
        "pin_memory": data.pin_memory,
    }
    shuffled = isinstance(data.sampler, RandomSampler)
    training = DataLoader(parts[0], shuffle=shuffled, generator=generator, drop_last=data.drop_last, **rest)
    return training, DataLoader(parts[1], **rest)


def _by_batches(batches: list[Any], share: float, generator: torch.Generator) -> tuple[Data, Data | None]:
    """Whole batches are held out: what is in a batch, and how, is for the network alone to know."""
    held = min(max(round(len(batches) * share), 1), len(batches) - 1)
    order = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[i] for i in order[held:]], [batches[i] for i in order[:held]]


def _has_length(data: Any) -> bool:
    return isinstance(data, Dataset) and hasattr(data, "__len__")


def _plain(loader: DataLoader[Any]) -> bool:
    """Whether all of the data is read, once an epoch, in its order or at random."""
    every = isinstance(loader.sampler, SequentialSampler) or (
        isinstance(loader.sampler, RandomSampler)
        and not loader.sampler.replacement
        and loader.sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    )
    return every and type(loader.batch_sampler) is BatchSampler and loader.batch_sampler.sampler is loader.sampler


class Source:
    """Batches of training data, in a new order every epoch where we are the ones to shuffle."""

    def __init__(self, data: Data, batch_size: int, shuffle: torch.Generator | None) -> None:
        self.data, self.batch_size, self.shuffle = data, batch_size, shuffle
        self.number = 0
        self.pair = is_pair(data)
        if not self.pair and isinstance(data, Dataset):
            ordered = shuffle is None or isinstance(data, IterableDataset)
            self.data = DataLoader(data, batch_size=batch_size, shuffle=not ordered, generator=shuffle)
        self.dealt = is_sharded(self.data)
        self.count = self._count()

    @property
    def generators(self) -> list[torch.Generator]:
        """A loader's own, which decides the order of its batches."""
        own = self.data.generator if isinstance(self.data, DataLoader) else None
        return [own] if own is not None and own is not self.shuffle else []

    def _count(self) -> int:
        """How many examples the data is, each once."""
        if self.pair:
            return len(self.data[0])  # type: ignore[index]
        if isinstance(self.data, DataLoader) and _has_length(self.data.dataset):
            sampler = self.data.sampler
            over_all = isinstance(sampler, SequentialSampler | RandomSampler | WeightedRandomSampler)
            if over_all or self.dealt or not isinstance(sampler, Sized):
                return len(self.data.dataset)  # type: ignore[arg-type]
            return len(sampler)  # of a part of the data
        return sum(batch.count for batch in self)

    def epoch(self, number: int) -> Iterator[Batch]:
        self.number = number
        if self.dealt and isinstance(self.data, DataLoader) and isinstance(self.data.sampler, DistributedSampler):
            self.data.sampler.set_epoch(number)
        return iter(self)

    def __iter__(self) -> Iterator[Batch]:
        if not self.pair:
            for index, raw in enumerate(self.data):  # type: ignore[arg-type]
                batch = Batch.of(raw, index)
                if batch.count:
                    yield batch
            return
        x, y = self.data  # type: ignore[misc]
        order = torch.arange(self.count) if self.shuffle is None else torch.randperm(self.count, generator=self.shuffle)
        for start in range(0, self.count, self.batch_size):
            chosen = order[start : start + self.batch_size]
            yield Batch((x[chosen],), {}, y[chosen], start // self.batch_size)


def data_seen(*data: Data | None) -> Provenance:
    """The examples of all the data that there is."""
    return together(Provenance.of(part) for part in data if part is not None)


def start_seen(model: nn.Module, prior: Gaussian | None) -> Provenance:
    """What the first weights and the prior have seen."""
    if prior is None:
        return past_of(model)
    return past_of(model, prior.mean, prior.provenance).joined(prior.provenance)
