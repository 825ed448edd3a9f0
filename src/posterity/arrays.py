"""Arrays from .npz files: numbers only, none of them able to run code, and any damage reported by name."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from posterity.border import check_size, filled, reading
from posterity.errors import NoDataSet

Array = npt.NDArray[np.generic]
Header = tuple[tuple[int, ...], bool, np.dtype[np.generic]]


def read_arrays(path: str | os.PathLike[str], wanted: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Array]:
    """The arrays of these names. What a file declares is compared with what it holds before memory is taken for it.

    Args:
        path: an .npz file.
        wanted: names of arrays.
        optional: names of arrays that may be missing.
    Returns:
        The arrays by name, in memory.
    Raises:
        NoDataSet: if the file cannot be read, lacks an array, or is damaged.
    """
    with (
        reading(path, f"an .npz file with the arrays {', '.join(wanted)}"),
        zipfile.ZipFile(Path(path)) as file,
    ):
        there = [name for name in optional if f"{name}.npy" in file.namelist()]
        return {name: _array(path, file, name) for name in (*wanted, *there)}


def array_shape(path: str | os.PathLike[str], name: str) -> tuple[int, ...]:
    """The shape of an array, from its header alone."""
    with (
        reading(path, f"an .npz file with the array {name}"),
        zipfile.ZipFile(Path(path)) as file,
        file.open(_member(path, file, name)) as member,
    ):
        return _header(path, name, member)[0]


def _array(path: str | os.PathLike[str], file: zipfile.ZipFile, name: str) -> Array:
    info = _member(path, file, name)
    with file.open(info) as member:
        shape, columns, dtype = _header(path, name, member)
        size = math.prod(shape) * dtype.itemsize
        if size > info.file_size:
            raise NoDataSet(
                f'{path}: the array "{name}" declares {size:,} bytes and the file holds {info.file_size:,} for it.'
            )
        check_size(path, size + 4 * math.prod(shape), f'an array "{name}" of shape {shape[:9]}')  # and as float32
        # The end is read as well: that is when the check sum is compared.
        content, held = filled(member.read, size)
        if held != size:
            raise NoDataSet(f'{path}: the array "{name}" declares {size:,} bytes and has {held:,} or others.')
    return content.view(dtype).reshape(shape, order="F" if columns else "C")


def _member(path: str | os.PathLike[str], file: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        return file.getinfo(f"{name}.npy")
    except KeyError:
        there = ", ".join(sorted(inside.removesuffix(".npy") for inside in file.namelist()))[:200]
        raise NoDataSet(
            f'{path}: there is no array "{name}" in it, it has {there or "none"}: save it under that name.'
        ) from None


def _header(path: str | os.PathLike[str], name: str, member: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, columns, dtype = read(member)
    if dtype.hasobject or dtype.itemsize == 0:
        raise NoDataSet(f'{path}: the array "{name}" is of {dtype}, which is not numbers.')
    if any(side < 0 for side in shape):
        raise NoDataSet(f'{path}: the array "{name}" declares the shape {shape[:9]}.')
    return shape, columns, dtype
