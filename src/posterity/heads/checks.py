"""What is asked of features and labels, with an error that says what was found."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.errors import BadData, BadTargets, NoData, SizeMismatch
from posterity.heads.words import Words


def counted(features: Any) -> int:
    """The number of rows."""
    if not hasattr(features, "shape"):
        features = torch.as_tensor(features)
    if len(features.shape) != 2:
        raise BadData(
            f"features have shape {tuple(features.shape)}: give a matrix, one row of real numbers an example."
        )
    return int(features.shape[0])


def checked_features(features: Any, width: int | None = None, index: Tensor | None = None) -> Float[Tensor, "n d"]:
    """Features as a matrix in double precision, of the width that is known already: all rows, or some of a memory map's."""
    if isinstance(features, Tensor):
        rows = (features if index is None else features[index.to(features.device)]).detach().cpu()
    else:
        array = _numbers(features)
        # A copy: what lies on a disk is read here, and may not be written to.
        rows = torch.from_numpy(np.array(array if index is None else array[index.numpy()]))
    if rows.ndim != 2 or rows.shape[1] == 0 or rows.is_complex():
        raise BadData(f"features have shape {tuple(rows.shape)}: give a matrix, one row of real numbers an example.")
    if width is not None and rows.shape[1] != width:
        raise SizeMismatch(f"features have {rows.shape[1]} columns here and {width} where the head was fitted.")
    rows = rows.double()
    finite = rows.isfinite().all(0)
    if not bool(finite.all()):
        column = int((~finite).nonzero()[0])
        raise BadData(
            f"column {column} of the features (and {int((~finite).sum()) - 1} more) has a NaN or an infinity: "
            "leave such columns out, or fill the gaps."
        )
    return rows


def _numbers(features: Any) -> npt.NDArray[Any]:
    """An array, a memory map, a table of pandas or lists, as an array of real numbers."""
    try:
        array = np.asarray(features)
    except (TypeError, ValueError) as error:
        raise BadData(f"features are a {type(features).__name__} that is no matrix ({error}).") from None
    if array.dtype.kind not in "fiub":
        raise BadData(f"features are {array.dtype}: give a matrix, one row of real numbers an example.")
    return array


def checked_labels(
    labels: Tensor, folds: Int[Tensor, " n"], count: int, classes: int | None, words: Words | None
) -> tuple[Int[Tensor, " n"], int]:
    """Labels as indices, and how many classes there are."""
    if count == 0:
        raise NoData("there is no labelled example: a head needs at least one.")
    if labels.ndim != 1 or len(labels) != count or len(folds) != count:
        raise SizeMismatch(
            f"there are {count} rows of features, {tuple(labels.shape)} labels and {tuple(folds.shape)} folds."
        )
    if labels.is_floating_point() or labels.is_complex():
        raise BadTargets("class labels must be whole numbers from 0; numbers to be predicted go to `regress`.")
    y = labels.detach().cpu().long()
    known = int(y.max()) + 1
    total = max(known, classes or 0, 0 if words is None else len(words.names))
    if (
        int(y.min()) < 0
        or (classes is not None and known > classes)
        or (words is not None and total > len(words.names))
    ):
        raise BadTargets(
            f"labels run from {int(y.min())} to {known - 1}, and there are {classes or (words and len(words.names))} classes: "
            "number them from 0."
        )
    missing = sorted(set(range(total)) - set(y.tolist()))
    if total < 2:
        raise BadTargets("all labels are of one class: give an example, or at least a name, of another.")
    if missing and words is None:
        raise BadTargets(
            f"class {missing[0]} (and {len(missing) - 1} more) has no label: label one, or give names (words)."
        )
    return y, total
