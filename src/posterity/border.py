"""Where files are read: what goes wrong leaves as a named error, and memory is counted before it is taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from posterity.errors import NoDataSet, OversizedData, PosterityError, TooLittleMemory
from posterity.memory import require_memory

ALLOWED = 1 << 30
"""Bytes of memory that reading one file may take, whatever it declares."""
PIECE = 1 << 20
"""Bytes that are unpacked at once."""
GROWTH = 100
"""Times its own size that reading a file may take, where that is more: MNIST's take 25 times theirs."""


@contextmanager
def reading(
    path: str | os.PathLike[str], what: str, wrong: type[PosterityError] = NoDataSet, remedy: str = "Get it again."
) -> Iterator[None]:
    """The one place where errors of other libraries become errors of ours. Those that are ours already pass.

    Args:
        path: the file that is read.
        what: what it is read as, such as "an IDX file".
        wrong: the error to raise.
        remedy: what to do about a damaged file.
    Raises:
        wrong: if the file cannot be opened or read, with the place as far as the library below tells it.
        TooLittleMemory: if memory ran out on the way.
    """
    try:
        yield
    except PosterityError:
        raise
    except MemoryError as error:
        raise TooLittleMemory(f"{path} does not fit into memory as {what}.") from error
    except OSError as error:
        if error.errno is None:  # of a decoder, not of the disk
            raise wrong(f"{path} cannot be read as {what} ({_said(error)}). {remedy}") from error
        raise wrong(f"{path} cannot be opened: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        odd = error.object[error.start]
        raise wrong(f"{path}, byte {error.start}: 0x{odd:02x} is no {error.encoding}. Save it as UTF-8.") from error
    except Exception as error:  # decoders raise dozens of kinds between them
        raise wrong(f"{path} cannot be read as {what} ({_said(error)}). {remedy}") from error


def check_size(path: str | os.PathLike[str], need: int, what: str) -> None:
    """Refuse a file that declares far more than it can hold, before memory is taken for it.

    Args:
        path: the file that is read.
        need: bytes of memory that reading takes, copies included.
        what: what needs them, as the message says it.
    Raises:
        OversizedData: if that is more than `ALLOWED`, and more than `GROWTH` times the file.
        TooLittleMemory: if there is not that much.
    """
    size = Path(path).stat().st_size
    if need > max(ALLOWED, GROWTH * size):
        raise OversizedData(
            f"{path} has {size:,} bytes and declares {what}, which takes {need:,} bytes of memory: refused above "
            f"{max(ALLOWED, GROWTH * size):,}."
        )
    require_memory(need, f"{path} ({what})")


def filled(read: Callable[[int], bytes], size: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], int]:
    """So many bytes of a file, and how many it has: one more than asked for where there are others behind them."""
    content, held = np.empty(size, np.uint8), 0
    while held < size and (piece := read(min(PIECE, size - held))):
        content[held : held + len(piece)] = np.frombuffer(piece, np.uint8)
        held += len(piece)
    return content, held + (len(read(1)) if held == size else 0)


def _said(error: Exception) -> str:
    words = next(iter(str(error).splitlines()), "").strip(" .")[:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
