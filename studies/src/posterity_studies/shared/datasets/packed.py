"""Sets in one .npz file: raw pixels (CIFAR), or pictures one behind the other (the few-shot sets)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posterity.arrays import read_arrays
from posterity.errors import NoDataSet
from posterity.idx import Images, folder_of


def pixels(name: str, root: Path | None = None) -> Images:
    """x_train, y_train, x_test, y_test with images (n, height, width, 3) of bytes, as CIFAR comes."""
    arrays = read(_only_file(folder_of(name, root)), ("x_train", "y_train", "x_test", "y_test"))
    return Images(
        *((_channels_first(arrays[f"x_{p}"]), torch.from_numpy(arrays[f"y_{p}"]).long()) for p in ("train", "test"))
    )


def pictures(name: str, size: int = 224, root: Path | None = None, folder: str = "fewshot") -> Images:
    """Encoded pictures in one array of bytes, with offsets, labels and the part that each belongs to."""
    arrays = read(folder_of(folder, root) / f"{name}.npz", ("jpeg", "offset", "label", "split"))
    raw, ends = arrays["jpeg"].tobytes(), arrays["offset"]
    parts = []
    for part in ("train", "test"):
        here = np.flatnonzero(arrays["split"] == part)
        x = torch.stack([decode(raw[ends[i] : ends[i + 1]], size) for i in here])
        parts.append((x, torch.from_numpy(arrays["label"][here].astype(np.int64))))
    return Images(*parts)


def grey(x: Tensor, size: int = 28) -> Tensor:
    """Colour images as grey ones of MNIST's size."""
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return torch.nn.functional.interpolate((x * weights).sum(1, keepdim=True), size=(size, size), mode="area")


def decode(raw: bytes, size: int) -> Tensor:
    """A picture as (3, size, size) in [0, 1]."""
    try:
        from PIL import Image
    except ImportError as error:
        raise NoDataSet("pictures are decoded by Pillow: pip install pillow.") from error
    picture = Image.open(io.BytesIO(raw)).convert("RGB").resize((size, size))
    return _channels_first(np.asarray(picture)[None].copy())[0]


def read(path: Path, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Named arrays of a file, none of them able to run code."""
    return dict(read_arrays(path, wanted))


def _only_file(folder: Path) -> Path:
    found = sorted(folder.glob("*.npz"))
    if len(found) != 1:
        raise NoDataSet(f"{folder} holds {len(found)} .npz files: one is needed.")
    return found[0]


def _channels_first(x: Any) -> Tensor:
    """Bytes (n, height, width, channels) as numbers in [0, 1]."""
    return torch.from_numpy(x).permute(0, 3, 1, 2).float().div_(255)
