"""Pictures in folders, one for each class: how most public image sets are unpacked."""

from __future__ import annotations

from pathlib import Path

import torch

from posterity.errors import NoDataSet
from posterity.idx import Images, folder_of
from posterity_studies.shared.datasets.packed import decode

KINDS = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff"}


def picture_folders(name: str, size: int = 224, share: float = 0.8, root: Path | None = None) -> Images:
    """NAME/train/CLASS/… and NAME/test/CLASS/…; or NAME/CLASS/…, of which the first `share` of each class in order is "
    "for training."""
    folder = folder_of(name, root)
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        classes = _classes(folder / "train")
        files = [{c: _pictures(folder / part / c) for c in classes} for part in ("train", "test")]
    else:
        classes = _classes(folder)
        found = {c: _pictures(folder / c) for c in classes}
        cut = {c: round(share * len(paths)) for c, paths in found.items()}
        files = [{c: found[c][: cut[c]] for c in classes}, {c: found[c][cut[c] :] for c in classes}]
    parts = []
    for part in files:
        pairs = [(path, label) for label, c in enumerate(classes) for path in part[c]]
        if not pairs:
            raise NoDataSet(f"{folder} has no pictures in one of its parts.")
        x = torch.stack([decode(path.read_bytes(), size) for path, _ in pairs])
        parts.append((x, torch.tensor([label for _, label in pairs])))
    return Images(*parts)


def _classes(folder: Path) -> list[str]:
    found = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not found:
        raise NoDataSet(f"{folder} holds no folder of a class.")
    return found


def _pictures(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in KINDS) if folder.is_dir() else []
