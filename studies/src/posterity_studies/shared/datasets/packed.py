"""Sets in one .npz file: raw pixels (CIFAR), or pictures one behind the other (the few-shot sets, ImageNet's samples)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posterity.arrays import read_arrays
from posterity.errors import NoDataSet
from posterity.idx import Images, folder_of
from posterity_studies.shared.datasets.gallery import Gallery, channels_first

NEAR_COPIES = {
    "caltech101": ("garfield/image_0032", "water_lilly/image_0009"),
    "dtd10": ("crosshatched_0131", "crosshatched_0048", "cobwebbed_0041"),
}
"""Pictures left out because another of their class is nearly the same: of two in different parts the test picture."""


def pixels(name: str, root: Path | None = None) -> Images:
    """x_train, y_train, x_test, y_test with images (n, height, width, 3) of bytes, as CIFAR comes."""
    arrays = read(_only_file(folder_of(name, root)), ("x_train", "y_train", "x_test", "y_test"))
    return Images(
        *((channels_first(arrays[f"x_{p}"]), torch.from_numpy(arrays[f"y_{p}"]).long()) for p in ("train", "test"))
    )


def pixel_gallery(name: str, root: Path | None = None) -> Gallery:
    """The same as pictures of any size: CIFAR for networks of ImageNet."""
    arrays = read(_only_file(folder_of(name, root)), ("x_train", "y_train", "x_test", "y_test", "classes"))
    x = np.concatenate((arrays["x_train"], arrays["x_test"]))
    labels = torch.from_numpy(np.concatenate((arrays["y_train"], arrays["y_test"])).astype(np.int64))
    tested = torch.arange(len(x)) >= len(arrays["x_train"])
    return Gallery(name, x.__getitem__, torch.arange(len(x)), labels, tested, _names(arrays["classes"]))


def pictures(
    name: str, size: int = 224, root: Path | None = None, folder: str = "fewshot", skip_bad: bool = False
) -> Images:
    """Encoded pictures in one array of bytes, with offsets, labels and the part that each belongs to."""
    return picture_gallery(name, root, folder).images(size, skip_bad)


def picture_gallery(name: str, root: Path | None = None, folder: str = "fewshot") -> Gallery:
    """The same, decoded when asked for; near copies across parts are left out."""
    arrays = read(folder_of(folder, root) / f"{name}.npz", ("jpeg", "offset", "label", "split", "path", "classes"))
    tested = torch.from_numpy(arrays["split"] == "test")
    left_out = tuple(f"{stem}." for stem in NEAR_COPIES.get(name, ()))
    kept = torch.tensor([not any(stem in str(path) for stem in left_out) for path in arrays["path"]])
    return _encoded(name, arrays, tested, _names(arrays["classes"])).only(kept)


def imagenet_samples(root: Path | None = None) -> Gallery:
    """A thousand pictures of ImageNet, one a class, all for training."""
    path = folder_of("imagenet_samples", root) / "imagenet_samples_1000.npz"
    arrays = read(path, ("jpeg", "offset", "label", "wnid_name"))
    tested = torch.zeros(len(arrays["label"]), dtype=torch.bool)
    return _encoded("imagenet_samples", arrays, tested, _names(arrays["wnid_name"]))


def _encoded(name: str, arrays: dict[str, Any], tested: Tensor, classes: tuple[str, ...]) -> Gallery:
    raw, ends = memoryview(arrays["jpeg"]), arrays["offset"]
    labels = torch.from_numpy(arrays["label"].astype(np.int64))
    if len(ends) != len(labels) + 1 or len(tested) != len(labels) or int(ends[-1]) > len(raw):
        raise NoDataSet(
            f"{name}: {len(labels)} labels, {len(ends)} offsets and {len(raw):,} bytes do not fit together."
        )
    return Gallery(
        name, lambda i: bytes(raw[ends[i] : ends[i + 1]]), torch.arange(len(labels)), labels, tested, classes
    )


def grey(x: Tensor, size: int = 28) -> Tensor:
    """Colour images as grey ones of MNIST's size."""
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return torch.nn.functional.interpolate((x * weights).sum(1, keepdim=True), size=(size, size), mode="area")


def read(path: Path, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Named arrays of a file, none of them able to run code."""
    return dict(read_arrays(path, wanted))


def _names(array: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in array)


def _only_file(folder: Path) -> Path:
    found = sorted(folder.glob("*.npz"))
    if len(found) != 1:
        raise NoDataSet(f"{folder} holds {len(found)} .npz files: one is needed.")
    return found[0]
