"""Files that are whole at every moment: written beside the old one, brought to the disk, then put in its place.

Everything that writes does it here, so that a full or read-only disk is one of three errors, whoever writes: `DiskFull`,
`NotWritable`, `MissingFolder`.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch

from posterity.errors import BadCheckpoint, DiskFull, MissingFolder, NotWritable

SEAL = b"posterity checkpoint 1\n"
"""What the file of a state begins with, before the sha256 of the rest."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        DiskFull: if there is no room. Nothing is left behind.
        NotWritable: if it cannot be written there for another reason.
        MissingFolder: if there is no such folder.

    Example:
        >>> with replacing("report.json") as draft:
        ...     draft.write_text(text)
    """
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}-{secrets.token_hex(8)}.tmp")
    with writing(target, draft):
        _check_plain(target)
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
    """Where a large file is to be written: tells before the first byte, or on the way, that the disk is full.

    Args:
        path: the file to write.
        size: its bytes.
    Raises:
        DiskFull: if there is no room, now or on the way.
    """
    target = Path(os.path.realpath(path))
    with writing(target):
        if target.parent.is_dir() and (free := shutil.disk_usage(target.parent).free) < size:
            raise DiskFull(
                f"the disk has {free:,} bytes left and {target} needs {size:,} bytes: make room, or write to another disk. "
                "Nothing was written."
            )
        yield


@contextmanager
def writing(path: Path, *others: Path) -> Iterator[None]:
    """What the system refuses while `path` is written leaves under its name; errors of other files pass.

    Args:
        path: the file or folder to write.
        others: further names under which it is written.
    """
    try:
        yield
    except (DiskFull, NotWritable, MissingFolder):
        raise
    except Exception as error:
        found = _of_system(error)
        if found is None or not (found.filename is None or Path(str(found.filename)) in (path, *others)):
            raise
        why = os.strerror(found.errno or errno.EIO)
        if found.errno in FULL:
            raise DiskFull(
                f"the disk is full ({why}): make room for {path}, or write to another disk. Nothing was written."
            ) from error
        if found.errno == errno.ENOENT and not path.parent.is_dir():
            raise MissingFolder(f"there is no folder {path.parent}: make it first (mkdir -p {path.parent}).") from error
        raise NotWritable(f"{path} cannot be written ({why}): choose another place. Nothing was written.") from error


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a place that nothing can be written to, before an hour of work and not after it. Nothing is left there.

    Args:
        path: the file or folder that is to be written later.
    Raises:
        DiskFull, NotWritable, MissingFolder: as writing would.
    """
    target = Path(os.path.realpath(path))
    trial = target.with_name(f".{target.name}-{secrets.token_hex(8)}.tmp")
    with writing(target, trial):
        if not target.is_dir():
            _check_plain(target)
        try:
            trial.touch(exist_ok=False)
        finally:
            trial.unlink(missing_ok=True)
    with room_for(target, 1):
        pass


def _check_plain(target: Path) -> None:
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "no plain file"
        raise NotWritable(f"{target} is {kind}: name a file to write.")


def _of_system(error: BaseException) -> OSError | None:
    """What the system said. Libraries wrap it: torch in an error with a context, safetensors in the words of Rust."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.errno is not None:
            return at
        if isinstance(at, Exception) and (code := re.search(r"\(os error (\d+)\)", str(at))):
            return OSError(int(code[1]), os.strerror(int(code[1])))
        at = at.__cause__ or at.__context__
    return None


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file in one step: text as UTF-8, or bytes as they are. See `replacing`."""
    with replacing(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


def write_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Tensors and numbers in a file that is whole at every moment, sealed. Nothing is copied on the way."""
    with replacing(path) as draft, open(draft, "wb") as file:
        file.write(SEAL + bytes(32))
        sealing = _SealWriter(file)
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


@contextmanager
def resuming(path: Path, what: str) -> Iterator[None]:
    """Whatever goes wrong with the content of a checkpoint is called `BadCheckpoint`.

    Args:
        path: its file.
        what: whose checkpoint it should be, such as "this training".
    """
    try:
        yield
    except BadCheckpoint:
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "").rstrip(".:")
        raise BadCheckpoint(
            f"{path} is not a checkpoint of {what} ({type(error).__name__}: {reason}): remove it to start again."
        ) from error


def check_settings(path: Path, what: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """`BadCheckpoint` unless the work that a checkpoint is of was begun with the same settings."""
    for name, value in ours.items():
        if repr(theirs.get(name)) != repr(value):
            raise BadCheckpoint(
                f"{path} is not a checkpoint of {what}: {name} was {theirs.get(name)} and is {value}. Remove it to start again."
            )


class _SealWriter(io.RawIOBase):
    """Writes to a file, and knows the sha256 of what went through."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self.file, self.sha256 = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        return self.file.write(content)
