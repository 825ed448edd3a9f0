"""Which examples were seen: six numbers for each, so that nothing is certified on data that its prior has seen.

An example's inputs are flattened, brought to a logarithmic scale (rounding is then alike for all magnitudes) and projected onto
fixed random directions. Cells of the projections, shifted from column to column, are the hashes. Rounding moves an example across
the border of a cell now and then, and seldom in all columns at once: one match means seen.

    columns 0–2   fine cells: the same numbers after a reshape, in float64 or float32, or an ulp apart
                  (inputs of a single number have one fine column, a few ulps wide)
    columns 3–5   coarse cells: the same numbers in float16 or bfloat16. They count only where one of two examples is
                  stored so coarsely, since in few dimensions different examples can share a coarse cell.

`fingerprint` stands for texts and tensors in the same way, to the last bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sized
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from posterity.data.batches import Batch, Data, Workers, batches, check_data

Hashes = Int[Tensor, "_ columns"]
"""One row of 64-bit numbers for each example."""

FINE, COARSE = 3, 3
COLUMNS = FINE + COARSE
DIRECTIONS = {True: 3, False: 6}
"""Projections that make up a fine or a coarse hash."""
FINE_CELL, COARSE_CELL = 2.0**-22, 2.0**-8
"""Width of a cell as a share of the example's length, on the logarithmic scale."""
SMALLEST = 2.0**-20
"""Numbers well below this count as equal to zero, as they do in float16."""
SECOND_LOOK = 32
"""How many examples of a dataset are read twice, to see whether they are the same each time."""
PIECE = 1 << 22
"""Numbers that are projected at once: 32 MB."""


def example_hashes(data: Data, batch_size: int = 1024) -> Hashes:
    """A row of hashes for each example's *input*, sorted: the order and the batches of the data leave no trace.

    Numbers count, not their shape or precision; targets do not count. Zeros at the end do not count either, so that padding
    leaves no trace. An input that is not the same each time it is read (a random crop) has no lasting hash.
    """
    check_data(data)
    workers = Workers.here()
    return gathered([batch_hashes(batch) for batch in batches(data, batch_size, workers)], workers)


def gathered(parts: list[Hashes], workers: Workers) -> Hashes:
    """The hashes of all batches of all workers, in order."""
    own = torch.cat(parts) if parts else torch.empty(0, COLUMNS, dtype=torch.int64)
    return ordered(_together(own, workers))


def batch_hashes(batch: Batch) -> Hashes:
    """The hashes of a batch, in its order."""
    inputs = _inputs(batch)
    n = batch.count
    length = np.zeros(n)
    projected = np.zeros((n, len(_offsets())))
    coarse = _coarse(inputs)
    size = sum(x.shape[1] for x in inputs)
    for number, x in enumerate(inputs):
        step = max(1, PIECE // max(1, x.shape[1]))
        weights = _directions(number, x.shape[1])
        for start in range(0, n, step):
            scaled = _scaled(x[start : start + step])
            length[start : start + step] += scaled.square().sum(1).numpy()
            projected[start : start + step] += (scaled @ weights).numpy()
    return _cells(projected, np.sqrt(length), size, coarse)


def ordered(hashes: Hashes) -> Hashes:
    """Rows in one order, whatever order they came in."""
    return hashes[torch.from_numpy(np.lexsort(hashes.cpu().numpy().T[::-1]))]


def data_fingerprint(hashes: Int[Tensor, "..."]) -> str:
    """32 hexadecimal digits for a set of data, whatever its order."""
    rows = hashes.cpu() if hashes.ndim > 1 else hashes.cpu()[:, None]
    return hashlib.blake2b(ordered(rows).contiguous().numpy().astype("<i8").tobytes(), digest_size=16).hexdigest()


def seen(known: Hashes, new: Hashes) -> Bool[Tensor, " n"]:
    """Which of the new examples are among the known ones: those with a match in any column."""
    found = torch.zeros(len(new), dtype=torch.bool)
    if not len(known) or not len(new):
        return found
    for column in range(FINE):
        found |= torch.isin(new[:, column], known[:, column])
    for column in range(FINE, COLUMNS):
        (mine, coarse), (theirs, stored_coarsely) = _taken_apart(new[:, column]), _taken_apart(known[:, column])
        found |= coarse & torch.isin(mine, theirs)
        found |= torch.isin(mine, theirs[stored_coarsely])
    return found


def by_chance(hashes: Hashes) -> int:
    """How many of these examples may match others without having been seen: none, but for inputs of a single number.

    Among some hundred examples of one number each, two agree in a few ulps by chance.
    """
    single = len(hashes) > 0 and bool((hashes[:, 0] == hashes[:, 1]).all())
    return max(2, len(hashes) // 50) if single else 0


def copies(hashes: Hashes) -> Int[Tensor, " n"]:
    """A number for each example, the same for copies of one: by the column that finds most of them.

    An example that half precision holds without loss is also a copy of one that rounds to it.
    """
    found = [hashes[:, column].unique(return_inverse=True)[1] for column in range(FINE)]
    groups = min(found, key=lambda groups: int(groups.max()) if len(groups) else 0)
    for column in range(FINE, COLUMNS):
        cell, coarse = _taken_apart(hashes[:, column])
        if not bool(coarse.any()) or bool(coarse.all()):
            continue
        fine_cells, first = _first_of(cell[~coarse], groups[~coarse])
        at = torch.searchsorted(fine_cells, cell[coarse]).clamp_max(len(fine_cells) - 1)
        matched = fine_cells[at] == cell[coarse]
        groups = groups.clone()
        groups[coarse.nonzero().squeeze(1)[matched]] = first[at[matched]]
    return groups.unique(return_inverse=True)[1] if len(groups) else groups


def whole_of(data: Data) -> Data:
    """All that a loader may ever give: its whole dataset, where it draws at random, drops the rest of a batch, or deals again.

    A sampler with `set_epoch` gives other examples in another epoch.
    """
    if not isinstance(data, DataLoader) or isinstance(data.dataset, IterableDataset):
        return data
    samplers = (data.sampler, data.batch_sampler, getattr(data.batch_sampler, "sampler", None))
    if any(hasattr(sampler, "set_epoch") for sampler in samplers) and isinstance(data.dataset, Sized):
        return DataLoader(data.dataset, batch_size=data.batch_size or 256, collate_fn=data.collate_fn)
    plain = isinstance(data.sampler, SequentialSampler | RandomSampler | WeightedRandomSampler)
    if not plain or type(data.batch_sampler) is not BatchSampler:
        return data
    if isinstance(data.sampler, SequentialSampler) and not data.drop_last:
        return data
    return DataLoader(
        data.dataset, batch_size=data.batch_size, collate_fn=data.collate_fn, num_workers=data.num_workers
    )


def same_again(data: Data, first: Hashes) -> bool:
    """Whether the data is the same when it is read a second time."""
    dataset = data.dataset if isinstance(data, DataLoader) and data.collate_fn is default_collate else data
    if _settled(dataset):
        return True
    if isinstance(dataset, Dataset) and not isinstance(dataset, IterableDataset) and isinstance(dataset, Sized):
        n = len(dataset)
        some = Subset(dataset, sorted({i * n // SECOND_LOOK for i in range(SECOND_LOOK)}))
        here = [batch_hashes(batch) for batch in batches(some, SECOND_LOOK, Workers())]
        return bool(seen(first, torch.cat(here)).all())
    second = example_hashes(data)
    return len(second) == len(first) and bool(seen(first, second).all())


def _settled(data: Any) -> bool:
    """Whether it is tensors, which nothing changes on the way."""
    while type(data) is Subset:
        data = data.dataset
    if type(data) is TensorDataset:
        return True
    return isinstance(data, (tuple, list)) and len(data) == 2 and all(isinstance(x, Tensor) for x in data)


def _first_of(cells: Int[Tensor, " n"], groups: Int[Tensor, " n"]) -> tuple[Int[Tensor, " k"], Int[Tensor, " k"]]:
    """Every cell once, in order, with the group of one of its examples."""
    order = cells.argsort(stable=True)
    cells, groups = cells[order], groups[order]
    new = torch.ones(len(cells), dtype=torch.bool)
    new[1:] = cells[1:] != cells[:-1]
    return cells[new], groups[new]


def _taken_apart(column: Int[Tensor, " n"]) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """A coarse hash, and its last bit: whether the example itself is stored coarsely."""
    return column >> 1, (column & 1).bool()


def _inputs(batch: Batch) -> list[Float64[Tensor, "n _"]]:
    """One row for each example, finite."""
    flat = (x.reshape(batch.count, -1).double() for x in batch.tensors())
    return [x.nan_to_num(2.0**120, 2.0**121, -(2.0**121)) for x in flat]


def _scaled(x: Float64[Tensor, "n size"]) -> Float64[Tensor, "n size"]:
    """sign(x) log₂(1 + |x|/smallest): a relative error of x is an absolute one here, the same for all magnitudes."""
    return (x.abs() / SMALLEST).log1p_().copysign_(x).div_(np.log(2))


def _coarse(inputs: list[Float64[Tensor, "n _"]]) -> npt.NDArray[np.bool_]:
    """Which examples half precision holds without loss. Whole numbers do not count: they are exact in any precision."""
    rows = torch.arange(len(inputs[0]))
    # Most examples show with their first entries that they are no such.
    for entries in (slice(16), slice(None)):
        parts = [x[rows, entries] for x in inputs]
        bfloat, half = (
            torch.stack([(x.to(dtype).double() == x).all(1) for x in parts]).all(0)
            for dtype in (torch.bfloat16, torch.float16)
        )
        rows = rows[bfloat | half]
    whole = torch.stack([(x[rows] == x[rows].round()).all(1) for x in inputs]).all(0)
    found = np.zeros(len(inputs[0]), bool)
    found[rows[~whole].numpy()] = True
    return found


@lru_cache(maxsize=8)
def _directions(number: int, size: int) -> Float64[Tensor, "size k"]:
    """Weights ± [½, 1] for the entries of one input, from a stream that begins alike for every size."""
    k = len(_offsets())
    raw = hashlib.shake_256(f"posterity directions {number}".encode()).digest(2 * k * size)
    steps = np.frombuffer(raw, "<i2").reshape(size, k).astype(np.float64)
    return torch.from_numpy(np.where(steps < 0, -0.5, 0.5) + steps / 2**16)


@lru_cache(maxsize=1)
def _offsets() -> npt.NDArray[np.float64]:
    """Where in [0, 1) each projection's cells begin."""
    k = FINE * DIRECTIONS[True] + COARSE * DIRECTIONS[False]
    return np.frombuffer(hashlib.shake_256(b"posterity offsets").digest(4 * k), "<u4") / 2**32


def _cells(
    projected: npt.NDArray[np.float64], length: npt.NDArray[np.float64], size: int, coarse: npt.NDArray[np.bool_]
) -> Hashes:
    columns: list[npt.NDArray[np.uint64]] = []
    start = 0
    logs = np.log2(length, out=np.full_like(length, -1e3), where=length > 0)
    for column in range(COLUMNS):
        fine = column < FINE
        if fine and column and size == 1:
            columns.append(columns[0])
            start += DIRECTIONS[fine]
            continue
        # A single number is all there is to tell such examples apart by: its cells are narrower, and all columns are one.
        cell = (FINE_CELL if size > 1 else FINE_CELL / 16) if fine else COARSE_CELL
        power = np.floor(logs + column / COLUMNS)
        found = _mixed(np.full(len(length), column + 1, np.uint64), power)
        for j in range(start, start + min(DIRECTIONS[fine], size)):
            place = projected[:, j] / (np.exp2(power) * cell)
            found = _mixed(found, np.floor(place + _offsets()[j]))
        start += DIRECTIONS[fine]
        columns.append(found if fine else found << np.uint64(1) | coarse.astype(np.uint64))
    return torch.from_numpy(np.stack(columns, 1).view(np.int64))


def _mixed(state: npt.NDArray[np.uint64], number: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """A state and a whole number stirred together (the finaliser of splitmix64)."""
    x = (state ^ number.astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        0xD1B54A32D192ED03
    )
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def _together(own: Hashes, workers: Workers) -> Hashes:
    """All workers' hashes, of which each may have another number."""
    counts = [int(n) for n in workers.gather(torch.tensor([len(own)]))]
    padded = torch.zeros(max(counts), COLUMNS, dtype=torch.int64)
    padded[: len(own)] = own
    return torch.cat([part[:n] for part, n in zip(workers.gather(padded), counts, strict=True)])


def fingerprint(parts: Iterable[str | Tensor], digits: int = 32) -> str:
    """The first hexadecimal digits of the SHA-256 of texts and tensors, one after the other.

    Of a tensor its numbers count, as float64: not where it is stored, nor its dtype, nor its shape. Put these into a text
    where they matter.

    Args:
        parts: texts, and tensors of any dtype, shape and device.
        digits: how many, at most 64. Four bits each.
    Returns:
        A string of that many digits.

    Example:
        >>> fingerprint(["weight (2, 3)", torch.ones(2, 3)], digits=16)
    """
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode())
        else:
            values = part.detach().cpu()
            values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
            found.update(values.double().contiguous().flatten().numpy().astype("<f8", copy=False).data)
    return found.hexdigest()[:digits]
