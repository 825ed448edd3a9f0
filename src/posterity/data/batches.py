"""Whatever a user has for data or new inputs (tensors, arrays, a Dataset, a DataLoader), as batches, dealt out to processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from posterity.blocks import run_with
from posterity.brief import brief
from posterity.checks import explained, not_finite
from posterity.errors import BadData, NoData, NotFinite

Data = DataLoader[Any] | Dataset[Any] | tuple[Tensor, Tensor] | list[Tensor] | Iterable[Any]

Inputs = Tensor | npt.NDArray[Any] | Mapping[str, Any] | Dataset[Any] | Iterable[Any]
Piece = tuple[tuple[Any, ...], dict[str, Any], int]
"""Inputs by position, inputs by name, and how many examples they are."""

TARGET_KEYS = ("labels", "label", "targets", "target", "y")


@dataclass(frozen=True)
class Batch:
    """Inputs for the network, by position or by name, and the targets."""

    __repr__ = brief

    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    targets: Tensor
    index: int = 0
    """Which batch of the data this is."""

    def __post_init__(self) -> None:
        if self.targets.ndim == 0:
            raise BadData(
                f"batch {self.index} has the single number {self.targets.item()} for its targets: it is an example, not a "
                "batch of them. Wrap the data in a DataLoader."
            )

    @classmethod
    def of(cls, raw: Any, index: int) -> Batch:
        """(inputs, targets), or a mapping with the targets under "labels" as transformers have it."""
        if isinstance(raw, Mapping):
            for key in TARGET_KEYS:
                if key in raw:
                    return cls((), {k: v for k, v in raw.items() if k != key}, torch.as_tensor(raw[key]), index)
            raise BadData(
                f"batch {index} is a mapping with the keys {sorted(raw)}: the targets must be under one of {TARGET_KEYS}."
            )
        if isinstance(raw, (tuple, list)) and len(raw) == 2:
            inputs, targets = raw
            targets = torch.as_tensor(targets)
            positional, named = ((), inputs) if isinstance(inputs, Mapping) else ((inputs,), {})
            return cls(positional, named, targets, index)
        raise BadData(
            f"batch {index} is a {type(raw).__name__}: it must be a pair (inputs, targets), or a mapping with the targets in it."
        )

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """The examples of several batches as one; what is no tensor holds for all and is the first's."""

        def together(parts: list[Any]) -> Any:
            return torch.cat(parts) if isinstance(parts[0], Tensor) else parts[0]

        first = batches[0]
        if len(batches) == 1:
            return first
        positional = tuple(together([b.positional[i] for b in batches]) for i in range(len(first.positional)))
        named = {key: together([b.named[key] for b in batches]) for key in first.named}
        return cls(positional, named, torch.cat([b.targets for b in batches]), first.index)

    @property
    def count(self) -> int:
        """How many examples the batch holds."""
        return len(self.targets)

    def part(self, rank: int, size: int) -> Batch:
        """Every size-th example, beginning with number `rank`."""
        return self if size == 1 else self._changed(lambda x: x[rank::size])

    def rows(self, index: Tensor) -> Batch:
        """The examples of these numbers."""
        return self._changed(lambda x: x[index.to(x.device)])

    def to(self, device: torch.device) -> Batch:
        """The batch on another device, fit for automatic differentiation."""
        given = (*self.positional, *self.named.values(), self.targets)
        if not any(isinstance(x, Tensor) and (x.device != device or x.is_inference()) for x in given):
            return self
        # Autograd cannot keep a tensor that was made in inference mode.
        return self._changed(lambda x: x.to(device, copy=x.is_inference()))

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Every tensor changed, inputs and targets alike; what is no tensor holds for all examples and stays."""
        kept = {key: change(x) if isinstance(x, Tensor) else x for key, x in self.named.items()}
        positional = tuple(change(x) if isinstance(x, Tensor) else x for x in self.positional)
        return Batch(positional, kept, change(self.targets), self.index)

    def not_finite(self, name: str = "batch") -> str | None:
        """A sentence about NaN or infinities among inputs and targets; None where all numbers are finite."""
        given = {"inputs": [*self.positional, *self.named.values()], "targets": [self.targets]}
        for what, values in given.items():
            for value in values:
                problem = isinstance(value, Tensor) and not_finite(value, f"the {what} of {name} {self.index}")
                if problem:
                    return problem
        return None

    def tensors(self) -> list[Tensor]:
        """Every tensor among the inputs in one order, real, on the CPU, a row for each example.

        What is no tensor holds for the whole batch and is left out.
        """
        found = [*self._rows(self.positional), *self._rows(self.named)]
        if not found:
            raise BadData(
                f"batch {self.index} has no tensor among its inputs: there is nothing to tell examples apart by."
            )
        return found

    def _rows(self, inputs: Any) -> Iterator[Tensor]:
        if isinstance(inputs, Mapping):
            for key in sorted(inputs, key=str):
                yield from self._rows(inputs[key])
        elif isinstance(inputs, (tuple, list)):
            for x in inputs:
                yield from self._rows(x)
        elif isinstance(inputs, (Tensor, np.ndarray)):
            x = torch.as_tensor(inputs).detach().cpu()
            if x.ndim == 0 or len(x) != self.count:
                raise BadData(
                    f"batch {self.index} has {self.count} targets and an input of shape {tuple(x.shape)}: inputs need one row "
                    "for each example."
                )
            yield torch.view_as_real(x.resolve_conj()) if x.is_complex() else x

    def outputs(self, model: nn.Module, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """The network's outputs, with other parameters if given; the logits, where it returns a record of several things."""
        try:
            if parameters is None:
                result = model(*self.positional, **self.named)
            else:
                result = run_with(model, parameters, self.positional, self.named)
        except (RuntimeError, ValueError, IndexError) as error:
            problem = explained(error, model, self.positional, self.named)
            if problem is None:
                raise
            raise problem from error
        if not isinstance(result, Tensor):
            result = getattr(result, "logits", result)
        if not isinstance(result, Tensor):
            raise BadData(
                f"the network returned a {type(result).__name__}: a tensor, or a record with .logits, is needed."
            )
        return result

    def each(self, outputs: Tensor) -> Tensor:
        """The outputs, if their first dimension counts the examples.

        Raises:
            BadData: if it does not.
        """
        if not outputs.ndim or len(outputs) != self.count:
            raise BadData(
                f"the network gave outputs of shape {tuple(outputs.shape)} for {self.count} inputs: the first dimension counts "
                "examples. A single input is x[None]."
            )
        return outputs


def batches(data: Data, batch_size: int, workers: Workers | None = None) -> Iterator[Batch]:
    """This worker's share of the data, batch by batch.

    Tensors and datasets are cut into batches and dealt out in turn. A DataLoader with a DistributedSampler is taken as it
    is; any other is dealt out in turn too, so that no example counts twice.
    """
    workers = workers or Workers.here()
    for index, raw in enumerate(_raw(data, batch_size)):
        if is_sharded(data) or index % workers.size == workers.rank:
            batch = Batch.of(raw, index)
            if batch.count:
                yield batch


def batch_count(data: Data, batch_size: int, workers: Workers | None = None) -> int | None:
    """How many batches this worker's share has, where that is known."""
    count = -(-len(data[0]) // batch_size) if is_pair(data) else known_length(data)
    if count is not None and isinstance(data, Dataset):
        count = -(-count // batch_size)
    workers = workers or Workers.here()
    return count if count is None or is_sharded(data) else len(range(workers.rank, count, workers.size))


def check_data(data: Data) -> None:
    """Refuse what can be seen to be wrong before anything runs."""
    if is_pair(data):
        x, y = data
        if len(x) != len(y):
            raise BadData(f"there are {len(x)} inputs and {len(y)} targets: they must pair up.")
        if not len(x):
            raise NoData("the tensors given as data are empty.")
    elif known_length(data) == 0:
        raise NoData(f"the {type(data).__name__} given as data is empty.")
    elif not isinstance(data, (Dataset, Iterable)):
        raise BadData(
            f"data is a {type(data).__name__}: give a DataLoader, a Dataset, or a pair of tensors (inputs, targets)."
        )


def _raw(data: Data, batch_size: int) -> Iterable[Any]:
    if is_pair(data):
        x, y = data
        return ((x[i : i + batch_size], y[i : i + batch_size]) for i in range(0, len(x), batch_size))
    return DataLoader(data, batch_size=batch_size) if isinstance(data, Dataset) else data


def is_pair(data: object) -> TypeGuard[tuple[Tensor, Tensor]]:
    """Whether data is two tensors: inputs and targets."""
    return isinstance(data, (tuple, list)) and len(data) == 2 and all(isinstance(x, Tensor) for x in data)


def known_length(data: Data) -> int | None:
    """Where it is known: a loader of a stream has a `__len__` that raises."""
    try:
        return len(data) if isinstance(data, Sized) else None
    except TypeError:
        return None


def is_sharded(data: Data) -> bool:
    """Whether a loader deals out the data among workers by itself."""
    samplers = (getattr(data, "sampler", None), getattr(getattr(data, "batch_sampler", None), "sampler", None))
    return isinstance(data, DataLoader) and any(isinstance(s, DistributedSampler) for s in samplers)


def input_batches(x: Inputs, batch_size: int, device: torch.device, dtype: torch.dtype = torch.float32) -> list[Batch]:
    """Inputs alone as batches, arrays in the network's `dtype`; the targets are stand-ins that tell how many there are."""
    if batch_size < 1:
        raise ValueError(f"batch_size is at least 1, not {batch_size}")
    if isinstance(x, np.ndarray) and np.issubdtype(x.dtype, np.floating):
        # numpy computes in float64 unless stated otherwise: of an array, that says nothing about what its owner wants.
        wide = np.float64 if dtype == torch.float64 else np.float32
        x = torch.from_numpy(x.astype(wide)).to(dtype)
    pieces = [piece for piece in _pieces(x, batch_size) if piece[2]]
    if not pieces:
        raise BadData("there is no input to predict for.")
    found = [
        Batch(args, kwargs, torch.zeros(count, dtype=torch.int64), index).to(device)
        for index, (args, kwargs, count) in enumerate(pieces)
    ]
    problem = next(filter(None, (batch.not_finite() for batch in found)), None)
    if problem:
        raise NotFinite(problem)
    return found


def _pieces(x: Inputs, batch_size: int) -> Iterator[Piece]:
    match x:
        case np.ndarray():
            floating = np.issubdtype(x.dtype, np.floating)
            yield from _pieces(torch.from_numpy(x.astype(np.float32) if floating else x), batch_size)
        case Tensor():
            if not x.ndim:
                raise BadData(f"the input is the single number {x.item()}: give a batch of inputs.")
            parts = (x,) if len(x) <= batch_size else x.split(batch_size)
            yield from (((part,), {}, len(part)) for part in parts)
        case Mapping():
            yield from _named(x, batch_size)
        case Dataset():
            yield from _pieces(DataLoader(x, batch_size=batch_size), batch_size)
        case _:
            # The parts of a text are texts: they would never end.
            if not isinstance(x, Iterable) or isinstance(x, str):
                raise BadData(f"the input is a {type(x).__name__}: give a tensor, an array, a Dataset or a DataLoader.")
            for raw in x:
                yield from _without_targets(raw, batch_size)


def _without_targets(raw: Any, batch_size: int) -> Iterator[Piece]:
    """A loader's batch: inputs alone, (inputs, targets), or a mapping that may hold targets."""
    if isinstance(raw, (tuple, list)):
        if len(raw) not in (1, 2):
            raise BadData(f"a batch of {len(raw)} parts: it must be inputs, or a pair (inputs, targets).")
        raw = raw[0]
    if isinstance(raw, Mapping):
        raw = {key: value for key, value in raw.items() if key not in TARGET_KEYS}
    yield from _pieces(raw, batch_size)


def _named(x: Mapping[str, Any], batch_size: int) -> Iterator[Piece]:
    lengths = {len(v) for v in x.values() if isinstance(v, Tensor)}
    if len(lengths) != 1:
        raise BadData(f"the inputs by name have {sorted(lengths)} examples: they must agree.")
    n = lengths.pop()
    for i in range(0, n, batch_size):
        part = {k: v[i : i + batch_size] if isinstance(v, Tensor) else v for k, v in x.items()}
        yield (), part, min(batch_size, n - i)


@dataclass(frozen=True)
class Workers:
    """This process and its fellows. Alone, every method is the identity."""

    rank: int = 0
    size: int = 1

    @classmethod
    def here(cls) -> Workers:
        """The workers started by `torchrun` and joined by `init_process_group`, or this process alone."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def sum(self, x: Tensor) -> Tensor:
        if self.size > 1:
            there = x.to(_meeting_place(x), copy=True).contiguous()
            dist.all_reduce(there)
            x = there.to(x.device)
        return x

    def total(self, x: float) -> float:
        return float(self.sum(torch.tensor(x, dtype=torch.float64)))

    def first(self, x: int) -> int:
        """The first worker's number, on all."""
        return int(self.gather(torch.tensor(x, dtype=torch.int64))[0])

    def gather(self, x: Tensor) -> list[Tensor]:
        """Every worker's tensor (all of one shape), in the order of ranks."""
        if self.size == 1:
            return [x]
        there = x.to(_meeting_place(x)).contiguous()
        parts = [torch.empty_like(there) for _ in range(self.size)]
        dist.all_gather(parts, there)
        return [part.to(x.device) for part in parts]


def _meeting_place(x: Tensor) -> torch.device:
    """NCCL only moves what is on a GPU, and a worker without a batch has nothing there."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else x.device
