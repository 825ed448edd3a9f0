"""Digits inside a package from PyPI: nothing is downloaded."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posterity.errors import NoDataSet

Pair = tuple[Tensor, Tensor]


@cache
def digits() -> Pair:
    """scikit-learn's 1,797 digits: other writers and another scanner, 8×8 pixels.

    Made to look as MNIST does: a 20×20 box in the middle of 28×28 black pixels (bicubic).
    """
    raw = sklearn_datasets().load_digits()
    small = torch.from_numpy(raw.images).float().div(16)[:, None]
    large = F.interpolate(small, size=(20, 20), mode="bicubic", align_corners=False).clamp(0, 1)
    return F.pad(large, (4, 4, 4, 4)), torch.from_numpy(raw.target).long()


def sklearn_datasets() -> Any:
    """scikit-learn's data sets, or how to get them."""
    try:
        from sklearn import datasets
    except ImportError:
        raise NoDataSet(
            "these images come with scikit-learn, which is not here: pip install 'posterity-studies[digits]'."
        ) from None
    return datasets
