"""Data sets that `datasets` saved to disk (`save_to_disk`): arrow files with a header of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from posterity.cli.reading.examples import Raw, Wish
from posterity.cli.reading.images import SIZE
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
            f'{folder} is a Hugging Face data set, and `datasets` is not installed: pip install "posterity[datasets]".'
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


def read_hugging_face(folder: Path, wish: Wish) -> Raw:
    """Images from an image column, else all columns of numbers side by side."""
    found = opened(folder, wish.part)
    target = target_of(found, wish)
    features = found.features
    pictures = [n for n, kind in features.items() if type(kind).__name__ == "Image" and n in (wish.columns or features)]
    if pictures:
        size, channels = wish.size or SIZE, wish.channels or 1
        x = np.stack([_pixels(image, size, channels) for image in found[pictures[0]]])
        columns: tuple[str, ...] = ()
    else:
        columns = wish.columns or tuple(n for n in features if n != target)
        x = np.stack([_column(found, name) for name in columns], axis=1)
    y = None if target is None else np.asarray(found[target])
    named = getattr(features.get(target), "names", None) if target else None
    if y is not None and named:
        y = np.array([named[int(i)] for i in y])
    return Raw(x.astype(np.float32), y, [str(i + 1) for i in range(len(x))], tuple(named or ()), columns)


def _pixels(image: Any, size: int, channels: int) -> Any:
    image = image.convert("L" if channels == 1 else "RGB").resize((size, size))
    return np.asarray(image, dtype=np.float32).reshape(size, size, channels).transpose(2, 0, 1) / 255


def _column(found: Any, name: str) -> Any:
    if name not in found.column_names:
        raise BadData(f'there is no column "{name}": the data set has {", ".join(found.column_names)}.')
    values = np.asarray(found[name])
    if values.dtype.kind not in "fiub" or values.ndim != 1:
        raise BadData(f'column "{name}" is no column of numbers: choose others with --columns.')
    return values
