"""Hashes as files of formats 1 and 2 have them, one for each example: the shape counts, and every bit of a float32."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from posterity.data.batches import Batch

OlderHashes = Int[Tensor, " _"]


@dataclass(frozen=True)
class _Rows:
    """One input of a batch, a row for each example: rounded to float32, and what whole numbers lose by that."""

    shape: tuple[int, ...]
    values: npt.NDArray[np.generic]
    rest: npt.NDArray[np.generic] | None = None


def older_batch_hashes(batch: Batch) -> Int[Tensor, " n"]:
    inputs = [_row(x, batch.count) for x in batch.tensors()]
    shapes = ";".join(",".join(map(str, x.shape)) for x in inputs)
    start = hashlib.blake2b(shapes.encode(), digest_size=8, person=b"posterity data 1")
    digests = []
    for i in range(batch.count):
        digest = start.copy()
        for x in inputs:
            digest.update(x.values[i])
            if x.rest is not None and x.rest[i].any():
                digest.update(x.rest[i])
        digests.append(digest.digest())
    return torch.from_numpy(np.frombuffer(b"".join(digests), "<i8").astype(np.int64))


def _row(x: Tensor, count: int) -> _Rows:
    flat = x.reshape(count, -1)
    values = flat.float()
    rest = None if x.is_floating_point() else _little_endian(flat.double() - values.double())
    return _Rows(tuple(x.shape[1:]), _little_endian(values), rest)


def _little_endian(x: Tensor) -> npt.NDArray[np.generic]:
    array = x.contiguous().numpy() + 0.0  # which makes one number of 0 and −0
    return array.astype(array.dtype.newbyteorder("<"), copy=False)
