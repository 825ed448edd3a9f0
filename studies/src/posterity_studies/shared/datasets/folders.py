"""Pictures in folders, one for each class: how most public image sets are unpacked."""

from __future__ import annotations

from pathlib import Path

import torch

from posterity.errors import NoDataSet
from posterity.idx import Images, folder_of
from posterity_studies.shared.datasets.gallery import Gallery

KINDS = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff"}


def picture_folders(
    name: str, size: int = 224, share: float = 0.8, root: Path | None = None, skip_bad: bool = False
) -> Images:
    """The whole set in memory; see `folder_gallery`."""
    return folder_gallery(name, share, root).images(size, skip_bad)


def folder_gallery(name: str, share: float = 0.8, root: Path | None = None) -> Gallery:
    """NAME/train/CLASS/… and NAME/test/CLASS/…; or NAME/CLASS/…, of which the first `share` of each class is for training.

    A single folder between NAME and the classes, as archives leave it (Kather_texture_2016_image_tiles_5000), is passed over.
    """
    folder = folder_of(name, root)
    inside = [path for path in folder.iterdir() if path.is_dir()]
    if len(inside) == 1 and any(path.is_dir() for path in inside[0].iterdir()):
        folder = inside[0]
    parted = (folder / "train").is_dir() and (folder / "test").is_dir()
    classes = _classes(folder / "train" if parted else folder)
    paths: list[Path] = []
    labels: list[int] = []
    tested: list[bool] = []
    for label, c in enumerate(classes):
        if parted:
            found = {part: _pictures(folder / part / c) for part in ("train", "test")}
            here, cut = found["train"] + found["test"], len(found["train"])
        else:
            here = _pictures(folder / c)
            cut = round(share * len(here))
        paths += here
        labels += [label] * len(here)
        tested += [i >= cut for i in range(len(here))]
    return of_files(name, paths, labels, tested, classes)


def of_files(name: str, paths: list[Path], labels: list[int], tested: list[bool], classes: list[str]) -> Gallery:
    """A gallery of picture files."""
    return Gallery(
        name,
        lambda i: paths[i].read_bytes(),
        torch.arange(len(paths)),
        torch.tensor(labels, dtype=torch.int64),
        torch.tensor(tested, dtype=torch.bool),
        tuple(classes),
    )


def _classes(folder: Path) -> list[str]:
    found = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not found:
        raise NoDataSet(f"{folder} holds no folder of a class.")
    return found


def _pictures(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in KINDS) if folder.is_dir() else []
