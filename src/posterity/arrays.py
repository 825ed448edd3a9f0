"""Arrays from .npz files: numbers only, none of them able to run code, and any damage told by name."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from posterity.errors import NoDataSet

Array = npt.NDArray[np.generic]


def read_arrays(path: str | os.PathLike[str], wanted: Sequence[str]) -> dict[str, Array]:
    """The arrays of these names. What a file declares is compared with what it holds before memory is taken for it.

    Args:
        path: an .npz file.
        wanted: names of arrays.
    Returns:
        The arrays by name, in memory.
    Raises:
        NoDataSet: if the file cannot be read, lacks an array, or is damaged.
    """
    try:
        with zipfile.ZipFile(Path(path)) as file:
            return {name: _array(file, name) for name in wanted}
    except NoDataSet as error:
        raise NoDataSet(f"{path}: {error}") from None
    except Exception as error:  # zipfile, zlib and numpy raise a dozen kinds between them
        reason = next(iter(str(error).splitlines()), "")[:200]
        raise NoDataSet(
            f"{path} is no .npz file with the arrays {', '.join(wanted)} ({type(error).__name__}: {reason}). Get it again."
        ) from None


def _array(file: zipfile.ZipFile, name: str) -> Array:
    try:
        info = file.getinfo(f"{name}.npy")
    except KeyError:
        there = ", ".join(sorted(inside.removesuffix(".npy") for inside in file.namelist()))[:200]
        raise NoDataSet(
            f'there is no array "{name}" in it, it has {there or "none"}: save it under that name.'
        ) from None
    with file.open(info) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns, dtype = read(member)
        if dtype.hasobject or dtype.itemsize == 0:
            raise NoDataSet(f'the array "{name}" is of {dtype}, which is not numbers.')
        size = math.prod(shape) * dtype.itemsize
        if any(side < 0 for side in shape) or size > info.file_size:
            raise NoDataSet(f'the array "{name}" declares {size:,} bytes and the file holds {info.file_size:,} for it.')
        content = member.read(size + 1)
    if len(content) != size:
        raise NoDataSet(f'the array "{name}" has {len(content):,} bytes and declares {size:,}.')
    # Of its own, writable memory: torch shares it.
    return np.frombuffer(bytearray(content), dtype).reshape(shape, order="F" if columns else "C")
