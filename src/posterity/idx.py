"""Data sets in MNIST's file format, read from the data root (`POSTERITY_DATA`): images in [0, 1], labels from 0."""

from __future__ import annotations

import gzip
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from posterity.errors import NoDataSet

IDX = ("mnist", "fashion_mnist", "notmnist", "kmnist", "emnist")


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
    folder = folder_of(name, root)
    parts = []
    for part in ("train", "t10k"):
        pixels = read_idx(_file(folder, f"{part}-images-idx3-ubyte"))
        labels = read_idx(_file(folder, f"{part}-labels-idx1-ubyte"))
        if len(pixels) != len(labels):
            raise NoDataSet(f"{folder} has {len(pixels)} images and {len(labels)} labels in its {part} files.")
        parts.append((torch.from_numpy(pixels).float().div_(255)[:, None], torch.from_numpy(labels).long()))
    return Images(*parts)


def read_idx(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The IDX format: two zero bytes, a type, the number of dimensions, their sizes, then the bytes."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08" or len(raw) < 4 + 4 * raw[3]:
        raise NoDataSet(f"{path} is not an IDX file of unsigned bytes.")
    shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
    body = raw[4 + 4 * raw[3] :]
    if len(body) != int(np.prod(shape)):
        raise NoDataSet(f"{path} declares {'×'.join(map(str, shape))} bytes and holds {len(body)}: fetch it again.")
    return np.frombuffer(body, np.uint8).reshape(shape).copy()


def _file(folder: Path, stem: str) -> Path:
    for name in (f"{stem}.gz", stem):
        if (folder / name).exists():
            return folder / name
    raise NoDataSet(f"there is no {stem}(.gz) in {folder}.")
