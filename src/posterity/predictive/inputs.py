"""Whatever a user has for new inputs, as batches: tensors, arrays, mappings, data sets and loaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from posterity.curvature.batches import TARGET_KEYS, Batch
from posterity.errors import BadData, NotFinite

Inputs = Tensor | npt.NDArray[Any] | Mapping[str, Any] | Dataset[Any] | Iterable[Any]


def input_batches(x: Inputs, batch_size: int, device: torch.device) -> list[Batch]:
    """Inputs alone as batches; the targets are stand-ins that tell how many there are."""
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


Piece = tuple[tuple[Any, ...], dict[str, Any], int]


def _pieces(x: Inputs, batch_size: int) -> Iterator[Piece]:
    match x:
        case np.ndarray():
            floating = np.issubdtype(x.dtype, np.floating)
            yield from _pieces(torch.from_numpy(x.astype(np.float32) if floating else x), batch_size)
        case Tensor():
            if not x.ndim:
                raise BadData(f"the input is the single number {x.item()}: give a batch of inputs.")
            yield from (((part,), {}, len(part)) for part in x.split(batch_size))
        case Mapping():
            yield from _named(x, batch_size)
        case Dataset():
            yield from _pieces(DataLoader(x, batch_size=batch_size), batch_size)
        case _:
            if not isinstance(x, Iterable):
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
