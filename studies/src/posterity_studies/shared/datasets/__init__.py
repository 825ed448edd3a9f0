"""Data sets on disk, read from the data root (`POSTERITY_DATA`): images in [0, 1], labels from 0."""

from posterity.idx import IDX, Images, data_root, folder_of, images, read_idx
from posterity_studies.shared.datasets.catalogue import CATALOGUE, download, load_set
from posterity_studies.shared.datasets.folders import picture_folders
from posterity_studies.shared.datasets.packed import grey, pictures, pixels
from posterity_studies.shared.datasets.subsets import per_class
from posterity_studies.shared.datasets.uci import UCI, Regression, uci

__all__ = [
    "CATALOGUE",
    "IDX",
    "UCI",
    "Images",
    "Regression",
    "data_root",
    "download",
    "folder_of",
    "grey",
    "images",
    "load_set",
    "per_class",
    "picture_folders",
    "pictures",
    "pixels",
    "read_idx",
    "uci",
]
