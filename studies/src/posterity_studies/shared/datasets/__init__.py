"""Data sets on disk, read from the data root (`POSTERITY_DATA`): images in [0, 1], labels from 0."""

from posterity.idx import IDX, Images, data_root, folder_of, images, read_idx
from posterity_studies.shared.datasets.catalogue import CATALOGUE, download, gallery, load_set
from posterity_studies.shared.datasets.folders import folder_gallery, picture_folders
from posterity_studies.shared.datasets.gallery import Gallery
from posterity_studies.shared.datasets.packed import (
    grey,
    imagenet_samples,
    picture_gallery,
    pictures,
    pixel_gallery,
    pixels,
)
from posterity_studies.shared.datasets.subsets import per_class
from posterity_studies.shared.datasets.uci import UCI, Regression, uci

__all__ = [
    "CATALOGUE",
    "IDX",
    "UCI",
    "Gallery",
    "Images",
    "Regression",
    "data_root",
    "download",
    "folder_gallery",
    "folder_of",
    "gallery",
    "grey",
    "imagenet_samples",
    "images",
    "load_set",
    "per_class",
    "picture_folders",
    "picture_gallery",
    "pictures",
    "pixel_gallery",
    "pixels",
    "read_idx",
    "uci",
]
