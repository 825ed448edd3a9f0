"""Data sets that `datasets` saved to disk (`save_to_disk`): arrow files with a header of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from posterity.cli.reading.examples import Raw, Wish
from posterity.cli.reading.images import GREY, LOOKED_AT, SIZE
from posterity.curvature.batches import TARGET_KEYS
from posterity.errors import BadData, NotInstalled

MARKS = ("dataset_dict.json", "dataset_info.json", "state.json")


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder is one."""
    return any((folder / name).is_file() for name in MARKS)


def opened(folder: Path, part: str) -> Any:
    """The data set, or one part of several."""
    try:
        import datasets
    except ImportError:
        raise NotInstalled(
            f"{folder} is a Hugging Face data set, and `datasets` is not installed: pip install datasets."
        ) from None
    found = datasets.load_from_disk(str(folder))
    if isinstance(found, datasets.DatasetDict):
        if part not in found:
            raise BadData(f'{folder} has the parts {", ".join(found)} and no "{part}": name one with --part.')
        return found[part]
    return found


def target_of(found: Any, wish: Wish) -> str | None:
    """The column of the labels: the one asked for, else one with a usual name."""
    names = found.column_names
    if wish.target and wish.target not in names:
        raise BadData(f'there is no column "{wish.target}": the data set has {", ".join(names)}.')
    return wish.target or next((key for key in TARGET_KEYS if key in names), None)


def shape_of(found: Any, wish: Wish) -> tuple[int, ...]:
    """Of one input, as `read_hugging_face` would give it."""
    target = target_of(found, wish)
    picture = picture_of(found, wish)
    if picture:
        size = wish.size or SIZE
        return wish.channels or _channels(found, picture), size, size
    columns = _inputs(found, wish, target)
    if len(columns) == 1 and len(found):
        return np.asarray(found[:1][columns[0]]).shape[1:] or (1,)
    return (len(columns),)


def picture_of(found: Any, wish: Wish) -> str | None:
    """The column of images, if there is one among those that are wanted."""
    wanted = wish.columns or found.column_names
    return next((n for n, kind in found.features.items() if type(kind).__name__ == "Image" and n in wanted), None)


def read_hugging_face(folder: Path, wish: Wish) -> Raw:
    """Images from an image column; one column of arrays as it is; else all columns of numbers side by side."""
    found = opened(folder, wish.part)
    if not len(found):
        raise BadData(f"{folder} has no example.")
    target = target_of(found, wish)
    picture = picture_of(found, wish)
    columns: tuple[str, ...] = ()
    if picture:
        size, channels = wish.size or SIZE, wish.channels or _channels(found, picture)
        x = np.stack([_pixels(row[picture], size, channels) for row in found])
    else:
        columns = _inputs(found, wish, target)
        values = [_column(found, name) for name in columns]
        if len(columns) == 1 and values[0].ndim > 1:
            x, columns = values[0], ()
        else:
            for name, value in zip(columns, values, strict=True):
                if value.ndim != 1:
                    raise BadData(f'column "{name}" holds arrays: choose it alone with --columns {name}, or others.')
            x = np.stack(values, axis=1)
    y = None if target is None else np.asarray(found[:][target])
    named = getattr(found.features.get(target), "names", None) if target else None
    if y is not None and named:
        if (y < 0).any():
            raise BadData(
                f'column "{target}" has examples without a label (−1), the first in row {int((y < 0).argmax()) + 1}.'
            )
        y = np.array([named[int(i)] for i in y])
    return Raw(x.astype(np.float32), y, [str(i + 1) for i in range(len(x))], tuple(named or ()), columns)


def _inputs(found: Any, wish: Wish, target: str | None) -> tuple[str, ...]:
    columns = wish.columns or tuple(n for n in found.column_names if n != target)
    for name in columns:
        if name not in found.column_names:
            raise BadData(f'there is no column "{name}": the data set has {", ".join(found.column_names)}.')
    return columns


def _channels(found: Any, picture: str) -> int:
    """1 if some images from the whole range are all grey, else 3."""
    some = found.select(range(0, len(found), max(1, len(found) // LOOKED_AT)))
    return 1 if all(row[picture].mode in GREY for row in some) else 3


def _pixels(image: Any, size: int, channels: int) -> Any:
    if image is None:
        raise BadData("there is an example without an image: drop it first.")
    image = image.convert("L" if channels == 1 else "RGB").resize((size, size))
    return np.asarray(image, dtype=np.float32).reshape(size, size, channels).transpose(2, 0, 1) / 255


def _column(found: Any, name: str) -> Any:
    read = found[:][name]
    gap = next((i for i, value in enumerate(read) if value is None), None)
    if gap is not None:
        raise BadData(
            f'column "{name}" has no value in row {gap + 1}: fill it in, or leave such rows out before saving.'
        )
    try:
        values = np.asarray(read)
    except ValueError:
        raise BadData(f'column "{name}" holds arrays of different lengths: a network needs one shape.') from None
    if values.dtype.kind not in "fiub":
        raise BadData(f'column "{name}" is no column of numbers: choose others with --columns.')
    return values
