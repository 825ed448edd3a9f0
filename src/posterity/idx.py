"""Data sets in MNIST's file format, read from the data root (`POSTERITY_DATA`): images in [0, 1], labels from 0."""

from __future__ import annotations

import gzip
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from posterity.border import check_size, filled, reading
from posterity.errors import NoDataSet

IDX = ("mnist", "fashion_mnist", "notmnist", "kmnist", "emnist")
STEMS = {"train": "train", "test": "t10k"}
"""How the files of a part begin."""
Part = Literal["train", "test"]
Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Images:
    """A data set in memory: images (n, channels, height, width) in [0, 1], and labels."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def data_root() -> Path | None:
    """Where data sets are, if anywhere."""
    root = os.environ.get("POSTERITY_DATA")
    return Path(root) if root and Path(root).is_dir() else None


def folder_of(name: str, root: Path | None = None) -> Path:
    """The set's folder, or how to get one."""
    root = root or data_root()
    if root is None:
        raise NoDataSet(f'"{name}" is read from the data root: set POSTERITY_DATA to a folder that holds {name}/.')
    if not (root / name).is_dir():
        raise NoDataSet(f"there is no {name}/ in {root}: `posterity study data {name}` says where it comes from.")
    return root / name


def images(name: str, root: Path | None = None) -> Images:
    """One of the sets in MNIST's format."""
    return Images(part_of(name, "train", root), part_of(name, "test", root))


def part_of(name: str, part: Part, root: Path | None = None) -> tuple[Tensor, Tensor]:
    """Images and labels of one part of such a set."""
    folder = folder_of(name, root)
    pixels = read_idx(_file(folder, f"{STEMS[part]}-images-idx3-ubyte"), dimensions=3)
    labels = read_idx(_file(folder, f"{STEMS[part]}-labels-idx1-ubyte"), dimensions=1)
    if len(pixels) != len(labels):
        raise NoDataSet(f"{folder} has {len(pixels)} images and {len(labels)} labels in its {STEMS[part]} files.")
    return torch.from_numpy(pixels).float().div_(255)[:, None], torch.from_numpy(labels).long()


def read_idx(path: Path, dimensions: int | None = None) -> Bytes:
    """The IDX format: two zero bytes, a type, the number of dimensions, their sizes, then the bytes.

    Args:
        path: a file, packed if its name ends in .gz. No more of it is unpacked than its header declares.
        dimensions: how many are expected; None takes any.
    Returns:
        The bytes in the shape that the header declares.
    Raises:
        NoDataSet: if it is damaged or no such file.
    """
    with reading(path, "an IDX file"), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != b"\x00\x00\x08":
            raise NoDataSet(
                f"{path}, byte 0: {head.hex(' ') or 'nothing'} does not begin an IDX file of unsigned bytes."
            )
        sizes = file.read(4 * head[3])
        if len(sizes) < 4 * head[3] or not head[3]:
            raise NoDataSet(f"{path} ends at byte {4 + len(sizes)}, within the sizes of its {head[3]} dimensions.")
        shape = struct.unpack(f">{head[3]}I", sizes)
        if dimensions not in (None, len(shape)):
            raise NoDataSet(f"{path}, byte 3: an array of {len(shape)} dimensions where {dimensions} are needed.")
        declared = "×".join(map(str, shape))
        # The bytes, and what they become: images float32, labels whole numbers of 64 bits.
        check_size(path, (9 if len(shape) == 1 else 5) * math.prod(shape), f"{declared} bytes")
        body, held = filled(file.read, math.prod(shape))
        if held != len(body):
            at, holds = 4 + len(sizes) + min(held, len(body)), str(held) if held < len(body) else "more"
            raise NoDataSet(f"{path}, byte {at}: it declares {declared} bytes and holds {holds}. Fetch it again.")
        return body.reshape(shape)


def _file(folder: Path, stem: str) -> Path:
    for name in (f"{stem}.gz", stem):
        if (folder / name).exists():
            return folder / name
    raise NoDataSet(f"there is no {stem}(.gz) in {folder}.")
