"""Every data set that the paper names: how it is read, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from posterity.errors import NoDataSet
from posterity.idx import Images, data_root, images
from posterity_studies.shared.datasets.cars import cars196
from posterity_studies.shared.datasets.download import Source, fetch
from posterity_studies.shared.datasets.folders import folder_gallery
from posterity_studies.shared.datasets.gallery import Gallery
from posterity_studies.shared.datasets.packed import imagenet_samples, picture_gallery, pixel_gallery, pixels

MIRRORS = {
    "mnist": ["https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"],
    "fashion_mnist": ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"],
    "notmnist": ["https://github.com/davidflanagan/notMNIST-to-MNIST/raw/master/"],
}
SHA256 = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    # The official training file was never in our hands, so there is no sum to believe it by.
    "notmnist": {
        "t10k-images-idx3-ubyte.gz": "8e7f38ae95cc8f48e0986175ffc9137e5007ebcf3d8fdf6656c904eb9dab198b",
        "t10k-labels-idx1-ubyte.gz": "5f8e6012f2ce730700d8d05fca098bc47f71d25b890e4bec7ac5ebfd614a4001",
    },
}


def _sources(name: str) -> tuple[Source, ...]:
    return tuple(Source(file, [m + file for m in MIRRORS[name]], digest) for file, digest in SHA256[name].items())


@dataclass(frozen=True)
class Entry:
    """A set: how it is read, whence it comes, and the files that can be fetched and verified."""

    read: Callable[[], Images]
    home: str
    sources: tuple[Source, ...] = field(default=())
    gallery: Callable[[], Gallery] | None = None
    """The pictures as they are, to be decoded at any size, where the set has colour pictures."""


def _pictures(gallery: Callable[[], Gallery], home: str) -> Entry:
    return Entry(lambda: gallery().images(224), home, gallery=gallery)


def _folders(name: str, home: str) -> Entry:
    return _pictures(partial(folder_gallery, name), f"{home}; unpack it to {name}/CLASS/")


def _packed(name: str, home: str) -> Entry:
    return _pictures(partial(picture_gallery, name), f"{home}; packed in fewshot/{name}.npz")


CATALOGUE: dict[str, Entry] = {
    "mnist": Entry(partial(images, "mnist"), "LeCun's MNIST", _sources("mnist")),
    "fashion_mnist": Entry(partial(images, "fashion_mnist"), "Zalando's Fashion-MNIST", _sources("fashion_mnist")),
    "notmnist": Entry(partial(images, "notmnist"), "davidflanagan/notMNIST-to-MNIST", _sources("notmnist")),
    "cifar10": Entry(
        partial(pixels, "cifar10"),
        "Krizhevsky's CIFAR-10, as x_train, y_train, x_test, y_test in one .npz",
        gallery=partial(pixel_gallery, "cifar10"),
    ),
    "cifar100": Entry(
        partial(pixels, "cifar100"), "Krizhevsky's CIFAR-100, likewise", gallery=partial(pixel_gallery, "cifar100")
    ),
    "ucmerced": _packed("ucmerced", "UC Merced land use"),
    "caltech101": _packed("caltech101", "Caltech 101"),
    "oxford_pets": _packed("oxford_pets", "Oxford-IIIT Pets"),
    "dtd": _packed("dtd10", "Describable Textures (ten classes)"),
    "cub200": _packed("cub28", "Caltech-UCSD Birds 200 (28 classes)"),
    "cars196": _pictures(cars196, "Stanford Cars; unpack cars_annos.mat and car_ims/ to cars196/"),
    "colorectal_histology": _folders("colorectal_histology", "Kather's colorectal histology (Zenodo 53169)"),
    "wrgbd": _folders("wrgbd", "Washington RGB-D, cropped"),
    "imagenet_samples": _pictures(imagenet_samples, "a thousand pictures of ImageNet-1K, one a class, in one .npz"),
    "imagenet": _folders("imagenet", "ImageNet-1K"),
}


def load_set(name: str) -> Images:
    """Any set by name."""
    return _entry(name).read()


def gallery(name: str) -> Gallery:
    """A set of colour pictures by name, decoded when and at which size they are asked for."""
    entry = _entry(name)
    if entry.gallery is None:
        raise NoDataSet(f"{name} has no colour pictures: `load_set` reads it.")
    return entry.gallery()


def download(name: str, root: Path | None = None) -> list[Path]:
    """Fetch and verify what can be had of a set; a `NoDataSet` says where the rest comes from."""
    entry = _entry(name)
    root = root or data_root()
    if root is None:
        raise NoDataSet("set POSTERITY_DATA to the folder that data sets shall be put into.")
    if not entry.sources:
        raise NoDataSet(f"{name} cannot be fetched by itself: it is {entry.home}.")
    return [fetch(source, root / name) for source in entry.sources]


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise NoDataSet(f'no data set "{name}" is known: there are {", ".join(CATALOGUE)}.')
    return CATALOGUE[name]
