"""Priors that others can begin with: what there is, where it comes from, and how to get it.

A list in the package (`manifest.json`) names each prior's sha256, size, licence and past. Small ones are in the package; the
others are made by one command from networks that can be downloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from posterity.errors import DamagedFile, MissingFile, UnknownNetwork
from posterity.gaussian import Gaussian
from posterity.gaussian import load as read

__all__ = ["ZooEntry", "entries", "find", "folder", "load"]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class ZooEntry:
    """One prior of the list."""

    name: str
    network: str
    """Which network it is for, and where to get that."""
    seen: str
    """What it has learned from."""
    licence: str
    sha256: str
    """Of the file; empty where there is none that could be shared, and `why` says so."""
    size: int
    """Bytes."""
    make: str
    """The command that makes it again."""
    gained: str
    """What it was worth, and where that was measured."""
    why: str = ""

    @property
    def path(self) -> Path:
        """Where its file is, or would be: in the package, else in the zoo's folder."""
        file = f"{self.name}.safetensors"
        return HERE / file if (HERE / file).exists() else folder() / file


def folder() -> Path:
    """Where priors that are not in the package are kept: `POSTERITY_ZOO`, or a folder in the user's cache.

    Returns:
        A path, which need not exist.
    """
    return Path(os.environ.get("POSTERITY_ZOO", Path.home() / ".cache" / "posterity" / "zoo"))


@cache
def entries() -> tuple[ZooEntry, ...]:
    """All priors of the list.

    Returns:
        A `ZooEntry` each, by name.
    """
    held = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    return tuple(sorted((ZooEntry(**entry) for entry in held), key=lambda entry: entry.name))


def find(name: str) -> ZooEntry:
    """The entry of that name.

    Raises:
        UnknownNetwork: if there is none.
    """
    for entry in entries():
        if entry.name == name:
            return entry
    raise UnknownNetwork(
        f'there is no prior "{name}" in the zoo: choose one of {", ".join(e.name for e in entries())}.'
    )


def load(name: str) -> Gaussian:
    """A prior by name, if its file is here and is the one that is listed.

    Args:
        name: as in `entries()`.

    Returns:
        A `Gaussian` to learn from.

    Raises:
        MissingFile: if the file has still to be made; the message has the command.
        DamagedFile: if it is another file than the one listed.

    Example:
        >>> fit = pt.adapt(network, (x, y), pt.zoo.load("watch"))
    """
    entry = find(name)
    if not entry.path.is_file():
        raise MissingFile(f'the prior "{name}" is not in {entry.path.parent}: make it with `{entry.make}`.')
    found = hashlib.sha256(entry.path.read_bytes()).hexdigest()
    if entry.sha256 and found != entry.sha256:
        raise DamagedFile(
            f"{entry.path} has sha256 {found[:12]}…, and {entry.sha256[:12]}… is listed: it is another prior, or was made with "
            "other versions of its libraries. Load it by its path with pt.load if you trust it."
        )
    return read(entry.path)
