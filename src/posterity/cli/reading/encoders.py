"""From images to rows of features: an encoder by name, run in batches, kept on disk."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posterity.bars import track
from posterity.cli.networks import imported
from posterity.cli.reading.examples import LIBRARIES, Array, RawData, is_code
from posterity.cli.reading.images import Source, image_files, pixels
from posterity.errors import BadData, NotInstalled, UnknownNetwork
from posterity.files import replacing

SIZE = 224
"""Pixels on a side, unless stated otherwise."""
AT_ONCE = 32
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's pixels in [0, 1]: what libraries of networks normalise by, and ONNX files from them."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A callable from images in [0, 1], (n, 3, size, size), to one row of numbers each."""

    name: str
    size: int
    run: Callable[[Tensor], Any]

    def rows(self, x: Array) -> Array:
        """One finite row for each image."""
        with torch.no_grad():
            found = self.run(torch.from_numpy(x))
        rows = torch.as_tensor(found).detach().cpu().float() if isinstance(found, Tensor | np.ndarray) else None
        if rows is None or rows.ndim != 2 or len(rows) != len(x) or not bool(rows.isfinite().all()):
            shape = type(found).__name__ if rows is None else str(tuple(rows.shape))
            raise BadData(f"the encoder {self.name} gave {shape} for {len(x)} images: one row of finite numbers each.")
        return rows.numpy()


def encoder(name: str, size: int | None = None) -> Encoder:
    """An encoder by name.

    Args:
        name: timm:NAME or torchvision:NAME (with their weights, where the library is installed), an .onnx file, or
            module:function, which is called without arguments and returns a callable from images to rows: its code is run.
        size: pixels on a side; what an ONNX file declares, or 224, by default.
    Raises:
        UnknownNetwork: if it cannot be found or made.
        NotInstalled: if a library is missing.
    """
    library, _, rest = name.partition(":")
    try:
        if library in LIBRARIES and rest:
            return Encoder(name, size or SIZE, _normalised(_of_library(library, rest)))
        if name.lower().endswith(".onnx"):
            return _onnx(name, size)
        if is_code(name):
            return Encoder(name, size or SIZE, _made(name))
    except ImportError as error:
        what = "onnxruntime" if name.lower().endswith(".onnx") else library
        raise NotInstalled(
            f"the encoder {name} needs {what}, which cannot be imported ({error}): pip install {what}"
        ) from None
    except (UnknownNetwork, NotInstalled):
        raise
    except Exception as error:  # whatever a library or someone's module raises
        raise UnknownNetwork(f"the encoder {name} cannot be made: {type(error).__name__}: {error}.") from error
    raise UnknownNetwork(
        f'"{name}" is no encoder: give timm:NAME, torchvision:NAME, an .onnx file, or module:function of your own.'
    )


def encoded_images(folder: Path, name: str, size: int | None, quiet: bool) -> RawData:
    """All images of a folder as rows of features."""
    files, classes = image_files(folder)
    x, notes = encoded({str(path): path for path, _ in files}, encoder(name, size), quiet)
    labels = np.array([name for _, name in files]) if classes else None
    return RawData(x, labels, [str(path.relative_to(folder)) for path, _ in files], classes, notes=notes)


def encoded(images: dict[str, Source], own: Encoder, quiet: bool = False) -> tuple[Array, list[str]]:
    """A row for each image, from the cache where it is there; and what has to be said of the images.

    The first batch is always computed: rows that are kept count only if they agree with it, whatever has changed since.
    """
    names = list(images)
    first, notes = _batch(images, names[:AT_ONCE], own)
    path = _place(names, images, own)
    kept = _read(path, len(names), first)
    if kept is not None:
        return kept, [*notes, f"features of {len(names):,} images from {path}"]
    parts = [first]
    starts = range(AT_ONCE, len(names), AT_ONCE)
    for start in track(starts, len(starts), f"encoding {len(names):,} images", show=not quiet):
        part, said = _batch(images, names[start : start + AT_ONCE], own)
        parts.append(part)
        notes += said
    rows = np.concatenate(parts)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft, draft.open("wb") as file:
            np.save(file, rows, allow_pickle=False)
    return rows, notes[:1]


def _batch(images: dict[str, Source], names: list[str], own: Encoder) -> tuple[Array, list[str]]:
    x, notes = pixels({name: images[name] for name in names}, own.size, 3)
    return own.rows(x), ["images that are not square were squeezed into one."] if notes else []


def _place(names: list[str], images: dict[str, Source], own: Encoder) -> Path | None:
    """Where rows of these files by this encoder are kept; None for images that are not files."""
    parts = [own.name, str(own.size)]
    for name in names:
        source = images[name]
        if not isinstance(source, Path):
            return None
        about = source.stat()
        parts.append(f"{source.resolve()} {about.st_size} {about.st_mtime_ns}")
    cache = (
        os.environ.get("POSTERITY_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'}/posterity"
    )
    return Path(cache) / "encoded" / f"{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:24]}.npy"


def _read(path: Path | None, count: int, first: Array) -> Array | None:
    if path is None or not path.is_file():
        return None
    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError):
        return None  # cut short: computed again
    same = rows.ndim == 2 and len(rows) == count and rows.shape[1] == first.shape[1]
    return rows if same and np.allclose(rows[: len(first)], first, rtol=1e-3, atol=1e-4 * np.abs(first).max()) else None


def _normalised(network: nn.Module) -> Callable[[Tensor], Tensor]:
    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, DEVIATION))
    network = network.eval()
    return lambda x: network((x - mean) / deviation)


def _of_library(library: str, name: str) -> nn.Module:
    if library == "timm":
        made: nn.Module = importlib.import_module("timm").create_model(name, pretrained=True, num_classes=0)
        return made
    found: nn.Module = importlib.import_module("torchvision.models").get_model(name, weights="DEFAULT")
    last = next(n for n, m in reversed(list(found.named_modules())) if isinstance(m, nn.Linear))
    parent, _, own = last.rpartition(".")
    setattr(found.get_submodule(parent), own, nn.Identity())  # its inputs are the features
    return found


def _onnx(name: str, size: int | None) -> Encoder:
    runtime = importlib.import_module("onnxruntime")
    if not Path(name).is_file():
        raise UnknownNetwork(f"there is no file {name}.")
    session = runtime.InferenceSession(name, providers=["CPUExecutionProvider"])
    (given,), declared = session.get_inputs(), None
    if len(given.shape) == 4 and isinstance(given.shape[-1], int):
        declared = given.shape[-1]
    mean, deviation = (np.array(v, dtype=np.float32).reshape(1, 3, 1, 1) for v in (MEAN, DEVIATION))
    return Encoder(
        name,
        size or declared or SIZE,
        lambda x: session.run(None, {given.name: (x.numpy() - mean) / deviation})[0].reshape(len(x), -1),
    )


def _made(name: str) -> Callable[[Tensor], Any]:
    made = imported(name)()
    if not callable(made):
        raise UnknownNetwork(f"{name} gives a {type(made).__name__}: a callable from images to rows is needed.")
    return made.eval() if isinstance(made, nn.Module) else made
