"""Every set by name, as features with labels; computed once and kept on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from posterity.files import replacing
from posterity.idx import images
from posterity_studies.folders import RUNS
from posterity_studies.shared.datasets import gallery
from posterity_studies.shared.features import features
from posterity_studies.shared.imagenet import pooled
from posterity_studies.shared.labelled.minilm import MiniLM
from posterity_studies.shared.labelled.tables import TABLES
from posterity_studies.shared.labelled.texts import TEXTS

MADE_UP = "made-up"
EACH = 80
"""The most examples of a class that are kept."""
PIXELS = 128
CLASSES = {"cifar100": 20}
"""Of a set with many photographs the first so many classes."""
IMAGES = ("dtd", "ucmerced", "oxford_pets", "caltech101", "cifar100", "cub200", "cifar10")
RAW = ("mnist", "fashion_mnist")

REPORTED = {
    "text": ("newsgroups", "reuters", "diseases", "tumours", "election", "friends", "sympy"),
    "images": ("dtd", "ucmerced", "oxford_pets", "caltech101", "cifar100", "mnist", "fashion_mnist"),
    "tables and series": (
        "wine", "breast cancer", "ionosphere", "heart disease", "vowels", "leaves", "power demand", "arrowheads",
    ),
}  # fmt: skip
"""The sets that are reported: none took part in a choice."""
SETTLING = ("scipy", "emoji", "talk", "cub200", "cifar10", "digits", "iris", "yeast", "gun point")
"""The sets that constants are settled on."""
NAMED = ("newsgroups", "reuters", "diseases", "tumours", "sympy")
"""The reported text sets whose classes have names that mean something."""


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """A set as rows of features."""

    x: Tensor
    y: Tensor
    names: tuple[str, ...]
    embedded: Tensor | None = None
    """The names of the classes through the same encoder, where it reads text."""

    @property
    def classes(self) -> int:
        return len(self.names)


@cache
def labelled(name: str, folder: Path = RUNS / "features") -> LabelledSet:
    """A set by name, from the cache or computed now."""
    if name == MADE_UP:
        return _made_up()
    path = folder / "labelled" / f"{name.replace(' ', '-')}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = _computed(name, folder)
        extra = {} if made.embedded is None else {"embedded": made.embedded}
        with replacing(path) as draft:
            save_file({"x": made.x, "y": made.y, **extra}, draft, {"names": json.dumps(made.names)})
    with safe_open(path, "pt") as file:
        found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        names = json.loads(file.metadata()["names"])
    return LabelledSet(found["x"].double(), found["y"], tuple(names), found.get("embedded"))


def _computed(name: str, folder: Path) -> LabelledSet:
    if name in TEXTS:
        pairs = sorted(set(TEXTS[name]()))
        names = sorted({label for _, label in pairs})
        y = torch.tensor([names.index(label) for _, label in pairs])
        kept = _first(y)
        y, names = _dense(y[kept], names)
        encode = MiniLM()
        return LabelledSet(encode([pairs[i][0] for i in kept.tolist()]), y, tuple(names), encode(names))
    if name in TABLES:
        x, y = TABLES[name]()
        kept = _first(y)
        y, names = _dense(y[kept], [str(c) for c in range(int(y.max()) + 1)])
        return LabelledSet(x[kept].contiguous(), y, tuple(names))
    if name in RAW:
        x, y = images(name).train
        kept = _first(y)
        return LabelledSet(x[kept].flatten(1), y[kept], tuple(map(str, range(10))))
    found = gallery(name)
    kept = _first(found.labels, at_least=1)
    classes = CLASSES.get(name, len(found.classes))
    found = found.only(kept[found.labels[kept] < classes].sort().values)
    return LabelledSet(features(pooled(), found, PIXELS, folder), found.labels, found.classes[:classes])


def _first(y: Tensor, at_least: int = 30) -> Tensor:
    """At most so many of each class, drawn once; a class with too few is left out."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    parts = [order[y[order] == c][:EACH] for c in y.unique()]
    return torch.cat([part for part in parts if len(part) >= at_least])


def _dense(y: Tensor, names: list[str]) -> tuple[Tensor, list[str]]:
    present, numbers = y.unique(return_inverse=True)
    return numbers, [names[c] for c in present.tolist()]


def _made_up() -> LabelledSet:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 4
    centres = torch.randn(4, 24, generator=draw, dtype=torch.float64)
    x = centres[y] + 1.5 * torch.randn(240, 24, generator=draw, dtype=torch.float64)
    return LabelledSet(x, y, ("a", "b", "c", "d"), centres + torch.randn(4, 24, generator=draw, dtype=torch.float64))


def split(found: LabelledSet, shots: int, seed: int, tested: int = 1000) -> tuple[Tensor, Tensor]:
    """So many rows of each class to learn from, and rows to test by: none of the first twenty-five a class has."""
    generator = torch.Generator().manual_seed(1000 + seed)
    train, rest = [], []
    for c in range(found.classes):
        own = (found.y == c).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=generator)]
        train.append(own[:shots])
        rest.append(own[20:])
    test = torch.cat(rest)
    return torch.cat(train), test[torch.randperm(len(test), generator=generator)[:tested]]
