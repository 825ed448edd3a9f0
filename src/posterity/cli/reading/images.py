"""Folders of images: one folder a class, or images without labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posterity.cli.reading.examples import Raw
from posterity.errors import BadData, NotInstalled

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
SIZE = 28
"""Pixels on a side, unless told otherwise."""
LOOKED_AT = 20
"""Images that decide whether all are grey."""
GREY = ("1", "L", "LA", "I", "I;16", "F")
"""Pillow's modes without colour."""


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


def channels_of(files: list[tuple[Path, str | None]]) -> int:
    """1 if some images from the whole range are all grey, else 3."""
    step = max(1, len(files) // LOOKED_AT)
    return 1 if all(_opened(path).mode in GREY for path, _ in files[::step]) else 3


def read_images(folder: Path, size: int, channels: int) -> Raw:
    """All images of a folder as numbers in [0, 1], (n, channels, size, size)."""
    files, classes = image_files(folder)
    x = np.empty((len(files), channels, size, size), dtype=np.float32)
    squeezed = 0
    for i, (path, _) in enumerate(files):
        image = _opened(path).convert("L" if channels == 1 else "RGB")
        squeezed += image.size[0] != image.size[1]
        if image.size != (size, size):
            image = image.resize((size, size))
        x[i] = np.asarray(image, dtype=np.float32).reshape(size, size, channels).transpose(2, 0, 1) / 255
    notes = [f"{squeezed:,} of {len(files):,} images are not square and were squeezed into one."] if squeezed else []
    labels = np.array([name for _, name in files]) if classes else None
    return Raw(x, labels, [str(p.relative_to(folder)) for p, _ in files], classes, notes=notes)


def _opened(path: Path):  # type: ignore[no-untyped-def]
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise NotInstalled("folders of images need Pillow, which is not installed: pip install pillow.") from None
    try:
        with Image.open(path) as image:
            return ImageOps.exif_transpose(image)
    except Exception as error:  # Pillow raises a dozen kinds for damaged files
        raise BadData(f"{path} cannot be read as an image ({type(error).__name__}): take it away or mend it.") from None
