"""Folders of images: one folder a class, or images without labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from posterity.border import reading
from posterity.cli.reading.examples import RawData
from posterity.errors import BadData, NotInstalled, OversizedData
from posterity.memory import require_memory

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""What is decoded, whatever a file is called: Pillow knows others that run programs."""
SIZE = 28
"""Pixels on a side, unless stated otherwise."""
PIXELS = 64_000_000
"""Of the largest image that is decoded: twelve bytes each on the way make 0.8 GB."""
LOOKED_AT = 20
"""Images that decide whether all are grey, or photographs."""
PHOTOGRAPH = 112
"""Pixels on the shorter side from which on too much is lost at 28."""
GREY = ("1", "L", "LA", "I", "I;16", "F")
"""Pillow's modes without colour."""
Source = Path | Callable[[], IO[bytes]]
"""An image: a file, or what opens one."""


def image_files(folder: Path) -> tuple[list[tuple[Path, str | None]], tuple[str, ...]]:
    """Every image with its class (None where the folder has no folders), and the classes, in alphabetical order."""
    inside = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    flat = [p for p in inside if p.is_file() and p.suffix.lower() in SUFFIXES]
    folders = {p.name: _images(p) for p in inside if p.is_dir()}
    classes = tuple(name for name, files in folders.items() if files)
    if flat and classes:
        raise BadData(
            f"{folder} holds {len(flat)} images and folders with images ({', '.join(classes[:3])}): put each image into the "
            "folder of its class."
        )
    if not flat and not classes:
        raise BadData(f"there is no image in {folder}: one folder a class is needed, with files such as .png or .jpg.")
    empty = [name for name, files in folders.items() if not files]
    if empty and classes:
        raise BadData(f'the folder "{empty[0]}" in {folder} holds no image: fill it or take it away.')
    return [(p, None) for p in flat] or [(p, name) for name in classes for p in folders[name]], classes


def _images(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix.lower() in SUFFIXES)


def read_images(folder: Path, size: int | None, channels: int | None) -> RawData:
    """All images of a folder as numbers in [0, 1], (n, channels, size, size)."""
    files, classes = image_files(folder)
    paths = [path for path, _ in files]
    x, notes = pixels({str(path): path for path in paths}, size or SIZE, channels)
    if size is None and (side := _side(paths)) >= PHOTOGRAPH:
        notes.append(
            f"these look like photographs ({side} pixels on the shorter side), and are reduced to {SIZE}: --encoder makes "
            "features of them at full size, --size asks for more pixels."
        )
    labels = np.array([name for _, name in files]) if classes else None
    return RawData(x, labels, [str(path.relative_to(folder)) for path in paths], classes, notes=notes)


def channels_of(images: Sequence[tuple[str, Source]]) -> int:
    """1 if some images from the whole range are all grey, else 3. Only their headers are read."""
    step = max(1, len(images) // LOOKED_AT)
    return 1 if all(_header(name, source) in GREY for name, source in images[::step]) else 3


def pixels(
    images: dict[str, Source] | dict[str, Path], size: int, channels: int | None
) -> tuple[npt.NDArray[np.float32], list[str]]:
    """Images by name as numbers in [0, 1], (n, channels, size, size), and what has to be said of them."""
    channels = channels or channels_of(list(images.items()))
    require_memory(4 * len(images) * channels * size**2, f"{len(images):,} images of {channels}×{size}×{size} numbers")
    x = np.empty((len(images), channels, size, size), dtype=np.float32)
    squeezed = 0
    for i, (name, source) in enumerate(images.items()):
        with _border(name), _opened(name, source) as image:
            _library("ImageOps").exif_transpose(image, in_place=True)
            squeezed += image.size[0] != image.size[1]
            mode = "L" if channels == 1 else "RGB"
            made = (image if image.mode == mode else image.convert(mode)).resize((size, size))
            x[i] = np.asarray(made, dtype=np.float32).reshape(size, size, channels).transpose(2, 0, 1) / 255
    said = f"{squeezed:,} of {len(images):,} images are not square and were squeezed into one."
    return x, [said] if squeezed else []


def _side(paths: Sequence[Path]) -> int:
    """The median shorter side of some images from the whole range."""
    sides = []
    for path in paths[:: max(1, len(paths) // LOOKED_AT)]:
        with _border(str(path)), _opened(str(path), path) as image:
            sides.append(min(image.size))
    return sorted(sides)[len(sides) // 2]


def _header(name: str, source: Source) -> str:
    with _border(name), _opened(name, source) as image:
        return str(image.mode)


def _border(name: str) -> Any:
    return reading(name, "an image", BadData, "Take it away or mend it.")


def _opened(name: str, source: Source) -> Any:
    """An image of which the header is read, and nothing more."""
    image = _library("Image").open(source if isinstance(source, Path) else source(), formats=FORMATS)
    if image.width * image.height > PIXELS:
        image.close()
        raise OversizedData(
            f"{name} declares {image.width:,}×{image.height:,} pixels, more than {PIXELS:,}: make it smaller first."
        )
    return image


def _library(part: str) -> Any:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise NotInstalled("images need Pillow, which is not installed: pip install pillow.") from None
    return Image if part == "Image" else ImageOps
