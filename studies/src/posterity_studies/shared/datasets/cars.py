"""Stanford Cars (Cars196): one folder of pictures and MATLAB annotations, as its authors publish it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posterity.errors import NoDataSet
from posterity.idx import folder_of
from posterity_studies.shared.datasets.folders import folder_gallery, of_files
from posterity_studies.shared.datasets.gallery import Gallery

ANNOTATIONS = "cars_annos.mat"


def cars196(root: Path | None = None) -> Gallery:
    """cars196/cars_annos.mat with the pictures it names (car_ims/…); without it, folders of classes."""
    folder = folder_of("cars196", root)
    path = folder / ANNOTATIONS
    if not path.exists():
        return folder_gallery("cars196", root=root)
    try:
        from scipy.io import loadmat
    except ImportError:
        raise NoDataSet(f"{path} is read by SciPy: pip install scipy.") from None
    try:
        content: dict[str, Any] = loadmat(path, squeeze_me=True)
        rows = content["annotations"].reshape(-1)
        names = [str(name) for name in content["class_names"].reshape(-1)]
        files = [folder / str(row["relative_im_path"]) for row in rows]
        labels = [int(row["class"]) - 1 for row in rows]
        tested = [bool(row["test"]) for row in rows]
    except Exception as error:  # SciPy raises a dozen kinds for damaged files
        raise NoDataSet(
            f"{path} is not Cars196's annotations ({type(error).__name__}: {str(error)[:100]}): get it again."
        ) from None
    if labels and not 0 <= min(labels) <= max(labels) < len(names):
        raise NoDataSet(f"{path} names {len(names)} classes and has labels {min(labels) + 1} to {max(labels) + 1}.")
    return of_files("cars196", files, labels, tested, names)
