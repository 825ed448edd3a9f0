"""Features of a frozen network, computed once and kept on disk: most of the work of a few-shot study."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from posterity.data.hashes import fingerprint
from posterity.files import replacing
from posterity_studies.errors import BadFeatures
from posterity_studies.folders import RUNS
from posterity_studies.shared.datasets.gallery import Gallery

FOLDER = RUNS / "features"
CHUNK = 128
"""Pictures a file: what a kill loses at most."""


@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """A network whose features are kept, with the name they are kept under."""

    name: str
    """Which network and which of its layers, and the first digits of its weights' sha256."""
    network: Callable[[], nn.Module]
    """Made when the first features are missing, from pictures in [0, 1] to one tensor each."""


def weights_name(path: Path) -> str:
    """The first digits of a file's sha256: features of other weights are other features."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def features(
    frozen: FrozenNetwork, gallery: Gallery, size: int, folder: Path = FOLDER, skip_bad: bool = False
) -> Tensor:
    """A row of features (float32) for each picture of the gallery, in its order.

    Every chunk is a file of its own, written in one step, so that a killed run goes on where it stopped. Pictures that cannot
    be decoded have rows of NaN where `skip_bad`, and are an error else.
    """
    where = folder / f"{frozen.name}-{size}-{gallery.name}-{_identity(gallery)}"
    where.mkdir(parents=True, exist_ok=True)
    network: nn.Module | None = None
    parts = []
    for start in range(0, len(gallery), CHUNK):
        path = where / f"{start:06}.safetensors"
        index = range(start, min(start + CHUNK, len(gallery)))
        if not path.exists():
            if network is None:
                network = frozen.network().eval()
            _write(path, _computed(network, gallery, index, size, skip_bad))
        parts.append(_read(path, len(index)))
    return torch.cat(parts)


def _identity(gallery: Gallery) -> str:
    """Which pictures of the file, by place."""
    return fingerprint([str(gallery.places.tolist())], digits=8)


@torch.no_grad()
def _computed(network: nn.Module, gallery: Gallery, index: range, size: int, skip_bad: bool) -> Tensor:
    x, bad = gallery.decoded(index, size, skip_bad)
    found = torch.cat([network(part) for part in x.split(32)]).float() if len(x) else torch.empty(0)
    if not bad:
        return found
    whole = torch.full((len(index), *found.shape[1:]), torch.nan)
    whole[[i - index.start for i in index if i not in set(bad)]] = found
    return whole


def _write(path: Path, rows: Tensor) -> None:
    with replacing(path) as draft:
        save_file({"features": rows.contiguous()}, draft)


def _read(path: Path, count: int) -> Tensor:
    try:
        found = load_file(path)["features"]
    except (SafetensorError, KeyError, OSError) as error:
        raise BadFeatures(f"{path} cannot be read ({error}): delete it, and it is computed again.") from None
    if len(found) != count:
        raise BadFeatures(f"{path} holds {len(found)} rows and {count} are asked for: delete it.")
    return found
