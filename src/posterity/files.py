"""Files that are whole at every moment: written beside the old one, brought to the disk, then put in its place."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch

from posterity.errors import DiskFull

SEAL = b"posterity checkpoint 1\n"
"""What the file of a state begins with, before the sha256 of the rest."""


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


def write_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Tensors and numbers in a file that is whole at every moment, sealed. Nothing is copied on the way."""
    with replacing(path) as draft, open(draft, "wb") as file:
        file.write(SEAL + bytes(32))
        sealing = _Sealing(file)
        torch.save(dict(state), cast(IO[bytes], sealing))
        file.seek(len(SEAL))
        file.write(sealing.sha256.digest())


def read_state(path: str | os.PathLike[str]) -> Any:
    """What `write_state` wrote, to the last bit; nothing in it is run."""
    whole = Path(path).read_bytes()
    seal, content = whole[: len(SEAL) + 32], whole[len(SEAL) + 32 :]
    if not seal.startswith(SEAL) or hashlib.sha256(content).digest() != seal[len(SEAL) :]:
        raise ValueError("its bytes are not those that were saved")
    # By its bytes, not by its name: torch takes a name in .safetensors for another format.
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


class _Sealing(io.RawIOBase):
    """Writes to a file, and knows the sha256 of what went through."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self.file, self.sha256 = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        return self.file.write(content)
