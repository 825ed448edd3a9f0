"""Data sets that `datasets` saved to disk (`save_to_disk`): arrow files with a header of their own."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from posterity.cli.reading.columns import check_target, read_columns, read_groups, read_target
from posterity.cli.reading.examples import Array, DataRecipe, RawData, ReadOptions
from posterity.cli.reading.images import SIZE, Source, channels_of, pixels
from posterity.cli.reading.tables import arrow_table
from posterity.data.batches import TARGET_KEYS
from posterity.errors import BadData, NotInstalled

MARKS = ("dataset_dict.json", "dataset_info.json", "state.json")


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder holds a Hugging Face data set."""
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
        found = found[part]
    found.data.table.validate(full=True)  # before anything follows an offset that is damaged
    if not len(found):
        raise BadData(f"{folder} has no example.")
    return found


def target_of(found: Any, options: ReadOptions) -> str | None:
    """The column of the labels: the one asked for, else one with a usual name."""
    return options.target or next((key for key in TARGET_KEYS if key in found.column_names), None)


def class_names(found: Any, target: str | None) -> tuple[str, ...]:
    """The names that the data set itself gives to its classes, if it does."""
    return tuple(getattr(found.features.get(target), "names", None) or ()) if target else ()


def picture_of(found: Any, options: ReadOptions) -> str | None:
    """The column of images, if there is one among those that are wanted."""
    wanted = options.columns or found.column_names
    return next((n for n, kind in found.features.items() if type(kind).__name__ == "Image" and n in wanted), None)


def image_shape(found: Any, options: ReadOptions) -> tuple[int, ...] | None:
    """The shape of one image, read from the images' headers."""
    picture = picture_of(found, options)
    if picture is None:
        return None
    size = options.size or SIZE
    return options.channels or channels_of(list(_pictures(found, picture).items())), size, size


def read_hugging_face(folder: Path, options: ReadOptions, recipe: DataRecipe | None, needed: bool) -> RawData:
    """Images from an image column; one column of arrays as it is; else columns of numbers and text as of any table."""
    found = opened(folder, options.part)
    alone = recipe is not None and not needed
    if alone and options.target not in found.column_names:
        options = replace(options, target=None)  # new inputs need not have it
    options = replace(options, target=target_of(found, options))
    picture, named = picture_of(found, options), class_names(found, options.target)
    table = arrow_table(folder, found.remove_columns([picture] if picture else []).with_format("arrow")[:])
    check_target(table, options, needed)
    array = None if picture else _array(found, options)
    if picture is None and array is None:
        raw = read_columns(table, replace(options, target=None) if alone else options, recipe)
        return replace(raw, y=_named(raw.y, named, options), classes=named)
    notes: list[str] = []
    if picture:
        array, notes = pixels(_pictures(found, picture), options.size or SIZE, options.channels)
    assert array is not None
    y = None if alone or options.target is None else _named(read_target(table, options), named, options)
    together = read_groups(table, options.groups, np.arange(len(array)))
    return RawData(
        array.astype(np.float32), y, [str(i + 1) for i in range(len(array))], named, notes=notes, groups=together
    )


def _pictures(found: Any, picture: str) -> dict[str, Source]:
    """Every image by its place, not decoded yet."""
    import datasets

    packed = found.select_columns([picture]).cast_column(picture, datasets.Image(decode=False))

    def source(row: int) -> Source:
        held = packed[row][picture]
        if held is None:
            raise BadData(f'column "{picture}" has no image in row {row + 1}: drop the row first.')
        return Path(held["path"]) if held.get("bytes") is None else lambda: io.BytesIO(held["bytes"])

    return {f'column "{picture}", row {row + 1}': source(row) for row in range(len(packed))}


def _array(found: Any, options: ReadOptions) -> Array | None:
    """The only column of inputs, where it holds arrays."""
    columns = options.columns or tuple(n for n in found.column_names if n not in (options.target, options.groups))
    if len(columns) != 1 or columns[0] not in found.column_names:
        return None
    kind = found.features[columns[0]]
    if type(kind).__name__ in ("Value", "ClassLabel"):
        return None
    try:
        values = np.asarray(found[:][columns[0]])
    except ValueError:
        raise BadData(f'column "{columns[0]}" holds arrays of different lengths: a network needs one shape.') from None
    if values.dtype.kind not in "fiub":
        raise BadData(f'column "{columns[0]}" holds {kind}, which are no numbers: choose others with --columns.')
    return values


def _named(y: Array | None, names: tuple[str, ...], options: ReadOptions) -> Array | None:
    """Numbers of classes as their names, where the data set has them."""
    if y is None or not names:
        return y
    odd = np.flatnonzero((y < 0) | (y >= len(names)))
    if len(odd):
        raise BadData(
            f'column "{options.target}" holds {int(y[odd[0]])} in row {int(odd[0]) + 1}, and its classes are 0 to '
            f"{len(names) - 1} (−1 is an example without a label): drop such rows first."
        )
    return np.array([names[int(i)] for i in y], dtype=object)
