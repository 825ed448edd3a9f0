"""Fill the data root from public sources, and believe a file by its sha256 alone."""

from __future__ import annotations

import gzip
import hashlib
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posterity.errors import NoDataSet
from posterity.files import write_whole


@dataclass(frozen=True)
class Source:
    """A file of a set: where it can be had, and the sha256 of its contents once unpacked (mirrors pack differently)."""

    file: str
    urls: Sequence[str]
    sha256: str


def fetch(source: Source, folder: Path) -> Path:
    """The file in the folder, fetched if it is not there or is another. Nothing unverified is ever left under its name."""
    path = folder / source.file
    if path.exists() and _contents(path.read_bytes(), path.name) == source.sha256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    tried = []
    for url in source.urls:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                raw: bytes = answer.read()
        except OSError as error:
            tried.append(f"{url}: {error}")
            continue
        try:
            found = _contents(raw, path.name)
        except (OSError, EOFError) as error:
            tried.append(f"{url}: {error}")
            continue
        if found != source.sha256:
            tried.append(f"{url}: its contents have sha256 {found[:12]}…, not {source.sha256[:12]}…")
            continue
        write_whole(path, raw)
        return path
    raise NoDataSet(f"{source.file} could not be had: " + "; ".join(tried or ["no public source is known"]))


def _contents(raw: bytes, name: str) -> str:
    return hashlib.sha256(gzip.decompress(raw) if name.endswith(".gz") else raw).hexdigest()
