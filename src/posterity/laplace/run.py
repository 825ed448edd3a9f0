"""A run of training: the batches that it reads, the objective that it minimises, and the best weights that it has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
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

from posterity.blocks import evaluating
from posterity.checks import check_groups
from posterity.curvature import Likelihood
from posterity.curvature.likelihoods import IGNORED
from posterity.data import Data
from posterity.data.batches import Batch, Workers, batches, is_pair, is_sharded
from posterity.data.leave_out import numbered
from posterity.errors import BadData, NoData, NotFinite
from posterity.laplace.prior import PriorPenalty

Objective = Callable[[Tensor, Tensor, int], Tensor]
"""(mean NLL, ½ quadratic of the prior, N) → what is minimised."""


def split(
    data: Data, validation: float | Data | None, generator: torch.Generator, groups: Tensor | None = None
) -> tuple[Data, Data | None]:
    """The data to train on and the data to watch: of a share, whole groups where there are groups."""
    if not isinstance(validation, float | int):
        return data, validation
    if not 0 <= validation < 1:
        raise ValueError(f"a validation share lies between 0 and 1, not {validation}")
    if not validation:
        return data, None
    indexed = data.dataset if isinstance(data, DataLoader) else data
    pair = is_pair(indexed)
    if groups is None and not pair and isinstance(indexed, list) and len(indexed) > 1:
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
    check_groups(groups, total)
    units = total if groups is None else len(groups.unique())
    held = round(units * validation)
    if not held:
        return data, None
    if held == units:
        raise NoData(f"a validation share of {validation} leaves none of {units} examples (or groups) to train on.")
    order = torch.randperm(units, generator=generator)
    first, second = order[held:], order[:held]
    if groups is not None:
        own = numbered(groups).cpu()
        first, second = (torch.isin(own, part).nonzero()[:, 0] for part in (first, second))
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


class BatchSource:
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
        """The number of examples, each counted once."""
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
            yield from batches(self.data, self.batch_size, Workers())
            return
        x, y = self.data  # type: ignore[misc]
        order = torch.arange(self.count) if self.shuffle is None else torch.randperm(self.count, generator=self.shuffle)
        for start in range(0, self.count, self.batch_size):
            chosen = order[start : start + self.batch_size]
            yield Batch((x[chosen],), {}, y[chosen], start // self.batch_size)


def map_objective(nll: Tensor, half_quadratic: Tensor, count: int) -> Tensor:
    """−ln posterior, divided by N: the prior counts once per data set, not once per batch."""
    return nll + half_quadratic / count


@dataclass
class Goal:
    """The objective of a batch over all workers, with its gradient: what an optimiser calls, once or as often as it likes."""

    model: nn.Module
    parameters: list[nn.Parameter]
    likelihood: Likelihood
    penalty: PriorPenalty | None
    objective: Objective
    source: BatchSource
    workers: Workers
    clip: float | None
    exact: bool = False
    """Whether every call takes the prior's force again for all blocks, as a line search needs it."""

    def take(self, batch: Batch, device: torch.device) -> None:
        """The coming batch, of which this worker sees its part."""
        if self.source.number == 0 and (problem := batch.not_finite()):
            raise NotFinite(problem)
        if self.source.dealt:
            self.count, self.batch = int(self.workers.total(batch.count)), batch.to(device)
        else:
            self.count, self.batch = batch.count, batch.part(self.workers.rank, self.workers.size).to(device)
        self.seen: list[tuple[float, float, float]] = []
        """(objective, mean NLL, accuracy) each time the optimiser asked: first of all before its step."""

    def __call__(self) -> float:
        for p in self.parameters:
            p.grad = None
        outputs, targets = self.likelihood.check(self.batch.outputs(self.model), self.batch.targets)
        self.outputs = outputs.numel() // max(1, len(outputs))
        nll = self.likelihood.nll(outputs, targets) / self.count
        forces, value = ({}, 0.0) if self.penalty is None else self.penalty.forces(self.exact)
        # The objective tells how much the prior counts; its gradient is at hand and need not be found by autograd.
        half = torch.full_like(nll, value, requires_grad=self.penalty is not None)
        right = _right(outputs, targets)
        size = self.workers.size
        if size > 1:
            # Values of the whole batch, everywhere; gradients of this worker's part, which add up below.
            both = torch.stack((nll.detach().double(), torch.as_tensor(right, device=nll.device).double()))
            total = self.workers.sum(both)
            nll, right = nll + (total[0].to(nll) - nll).detach(), float(total[1])
        loss = self.objective(nll, half, self.source.count)
        found = loss.item()
        if not math.isfinite(found):
            problem = self.batch.not_finite()
            raise NotFinite(
                problem
                or f"the loss of batch {self.batch.index} in epoch {self.source.number} is {found}: lower lr, or clip."
            )
        loss.backward()
        if size > 1:
            for p in self.parameters:
                if p.grad is not None:
                    p.grad = self.workers.sum(p.grad)
        if self.penalty is not None and half.grad is not None:
            self.penalty.pull(forces, half.grad.item())
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.seen.append((found, nll.item(), right / self.count))
        return found


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], likelihood: Likelihood) -> tuple[float, float]:
    """Mean NLL and accuracy (NaN for regression) in evaluation mode."""
    sums = Sums()
    device = next(model.parameters()).device
    with evaluating(model):
        for batch in batches:
            outputs, targets = likelihood.check(batch.to(device).outputs(model), batch.targets.to(device))
            nll = float(likelihood.nll(outputs, targets)) / batch.count
            sums.add(batch.count, nll, nll, _right(outputs, targets) / batch.count)
    if not sums.count:
        raise NoData("the validation data held no example.")
    return sums.means[1:]


class Sums:
    """Means over an epoch, each batch by its size."""

    def __init__(self) -> None:
        self.count, self.totals = 0, [0.0, 0.0, 0.0]

    def add(self, count: int, *means: float) -> None:
        self.count += count
        self.totals = [total + count * mean for total, mean in zip(self.totals, means, strict=True)]

    @property
    def means(self) -> tuple[float, float, float]:
        """Means of the objective, the NLL and the accuracy."""
        objective, nll, accuracy = (total / self.count for total in self.totals)
        return objective, nll, accuracy


def _right(outputs: Tensor, targets: Tensor) -> float:
    """How many examples are right, where targets are classes; of an example with many targets, the share of those that count."""
    if targets.is_floating_point():
        return math.nan
    counted = (targets != IGNORED).flatten(1) if targets.ndim > 1 else torch.ones_like(targets, dtype=torch.bool)
    right = (outputs.argmax(-1) == targets).view_as(counted) & counted
    if targets.ndim == 1:
        return float(right.sum())
    return float((right.sum(1) / counted.sum(1).clamp_min(1)).sum())


@dataclass(frozen=True)
class Epoch:
    """One line of the training history. Losses are mean nats an example."""

    objective: float
    nll: float
    accuracy: float
    validation_nll: float
    validation_accuracy: float
    lr: float
    noise: float | None = None
    """The noise precision of a regression after the epoch, where it is learned."""


class TrainingRun:
    """Epochs so far, and the best weights, in memory. A `Checkpoint` keeps them in a file as well."""

    known_seed: int | None = None
    """Of a run that goes on."""

    def __init__(self, workers: Workers) -> None:
        self.workers, self.seed = workers, 0
        self.epochs: list[Epoch] = []
        self.best, self.least, self.stale = 0, math.inf, 0
        self.first: Epoch | None = None

    def take_seed(self, generator: torch.Generator | None) -> int:
        """The run's own seed: drawn, or the one it began with, so that another process holds out the same examples."""
        device = None if generator is None else generator.device
        drawn = int(torch.randint(2**62, (), generator=generator, device=device))
        self.seed = self.workers.first(drawn if self.known_seed is None else self.known_seed)
        return self.seed

    def start(self, model: nn.Module) -> None:
        """Begin with the network's present weights, the best so far."""
        self.model = model
        self.best_weights = self._weights()

    def begin(self, first: Epoch, watched: float) -> None:
        """The weights that training begins with are the best so far."""
        self.first, self.best, self.least = first, -1, watched

    def note(self, epoch: Epoch, watched: float) -> None:
        """One more epoch, judged by the loss that is watched."""
        self.epochs.append(epoch)
        if watched < self.least:
            self.best, self.least, self.stale = len(self.epochs) - 1, watched, 0
            self.best_weights = self._weights()
        else:
            self.stale += 1

    def restore_best(self) -> None:
        self.model.load_state_dict(self.best_weights)

    def save(self) -> None:
        """Nothing is kept of a run without a checkpoint."""

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}
