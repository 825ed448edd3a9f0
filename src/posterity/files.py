"""Files that are whole at every moment: written beside the old one, brought to the disk, then put in its place."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posterity.errors import DiskFull


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A draft to write to. When the block ends without an error, it takes the place of `path` in one step.

    Whatever happens (an error, a full disk, a kill, a power cut), the old file or the new one is there, and whole. A link is
    followed, and what it points to is replaced.

    Args:
        path: the file to write. Its folder must exist.
    Yields:
        The path of an empty file in the same folder, since a file can be renamed into place only within one file system.
    Raises:
        OSError: if writing fails. Nothing is left behind.

    Example:
        >>> with replacing("report.json") as draft:
        ...     draft.write_text(text)
    """
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}-{secrets.token_hex(8)}.tmp")
    try:
        draft.touch(exist_ok=False)
        mode = draft.stat().st_mode
        yield draft
        draft.chmod(mode)  # some libraries make files that only their owner may read
        with open(draft, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    if os.name == "posix":
        # The new name lives in the folder, which has to reach the disk as well.
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def room_for(path: str | os.PathLike[str], size: int) -> Iterator[None]:
    """Where a large file is to be written: tells before the first byte, or at the last one, that the disk is full.

    Args:
        path: the file to write.
        size: its bytes.
    Raises:
        DiskFull: if there is no room, now or on the way.
    """
    target = Path(os.path.realpath(path))
    remedy = f"{target} needs {size:,} bytes: make room, or write to another disk. Nothing was written."
    if target.parent.is_dir() and (free := shutil.disk_usage(target.parent).free) < size:
        raise DiskFull(f"the disk has {free:,} bytes left and {remedy}")
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(f"the disk is full ({error.strerror}) and {remedy}") from error
        raise


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file in one step: text as UTF-8, or bytes as they are. See `replacing`."""
    with replacing(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
