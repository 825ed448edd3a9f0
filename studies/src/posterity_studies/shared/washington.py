"""Washington RGB-D objects (Lai et al. 2011) as the paper's stream: instances of 46 categories, then five more, one by one.

The public format: `apple/apple_1/apple_1_2_37_crop.png` is frame 37 of instance 1 seen from view 2. Depth is left aside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from posterity.errors import NoDataSet
from posterity.progressive import Stream, Task

LATER = ("banana", "coffee_mug", "stapler", "flashlight", "apple")
"""The categories that come one by one, in the paper's order; all others come first, together."""
TEST_VIEW = 2
VALIDATION_VIEWS, EVERY = (1, 4), 5
"""Every fifth frame of these views is for validation, as the paper has it."""

_FRAME = re.compile(r"(?P<instance>.+_\d+)_(?P<view>\d+)_(?P<frame>\d+)_crop\.png")


@dataclass(frozen=True)
class Frame:
    path: Path
    instance: str
    view: int
    number: int


class Crops(Dataset[tuple[Tensor, int]]):
    """Cropped images, read when asked for: (3, size, size) in [0, 1], and the number of the instance."""

    def __init__(self, frames: list[Frame], instances: list[str], size: int) -> None:
        self.frames, self.size = frames, size
        self.labels = {name: k for k, name in enumerate(instances)}

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        frame = self.frames[index]
        with Image.open(frame.path) as image:
            pixels = np.asarray(image.convert("RGB").resize((self.size, self.size)), dtype=np.float32)
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255, self.labels[frame.instance]


@dataclass(frozen=True)
class Washington:
    """The folder that holds a folder for each category."""

    root: Path

    @cached_property
    def categories(self) -> dict[str, list[Frame]]:
        """All frames by category, in the order of their names."""
        if not self.root.is_dir():
            raise NoDataSet(f"{self.root} is not a folder: fetch the cropped RGB-D objects and unpack them there.")
        found: dict[str, list[Frame]] = {}
        for folder in sorted(p for p in self.root.iterdir() if p.is_dir()):
            frames = []
            for path in sorted(folder.glob("*/*_crop.png")):
                if (named := _FRAME.fullmatch(path.name)) is not None:
                    frames.append(Frame(path, named["instance"], int(named["view"]), int(named["frame"])))
            if frames:
                found[folder.name] = sorted(frames, key=lambda f: (f.instance, f.view, f.number))
        if not found:
            raise NoDataSet(
                f"{self.root} has no <category>/<category>_<instance>/*_<view>_<frame>_crop.png in it: it is not the "
                "cropped set of RGB-D objects."
            )
        return found

    def stream(self, size: int = 224) -> Stream:
        """Six tasks: which instance is it, among those of 46 categories, of the bananas, of the coffee mugs, …"""
        if missing := [name for name in LATER if name not in self.categories]:
            raise NoDataSet(f"{self.root} lacks the categories {missing}, which are tasks of their own.")
        others = [frame for name, frames in self.categories.items() if name not in LATER for frame in frames]
        if not others:
            raise NoDataSet(f"{self.root} has no category beside {list(LATER)}: the first task would be empty.")
        tasks = [_task("other", others, size), *(_task(name, self.categories[name], size) for name in LATER)]
        return Stream("Washington RGB-D", tasks)


def _task(name: str, frames: list[Frame], size: int) -> Task:
    instances = sorted({frame.instance for frame in frames}, key=_natural)
    parts: dict[str, list[Frame]] = {"train": [], "validation": [], "test": []}
    place: dict[tuple[str, int], int] = {}
    for frame in frames:
        if frame.view == TEST_VIEW:
            parts["test"].append(frame)
            continue
        # Frames are counted within a view: their numbers have gaps.
        nth = place[frame.instance, frame.view] = place.get((frame.instance, frame.view), -1) + 1
        held = frame.view in VALIDATION_VIEWS and nth % EVERY == 0
        parts["validation" if held else "train"].append(frame)
    if empty := [part for part, found in parts.items() if not found]:
        raise NoDataSet(f'"{name}" has no {" and no ".join(empty)} images: views 1, 2 and 4 are needed.')
    made = {part: Crops(found, instances, size) for part, found in parts.items()}
    return Task(name, made["train"], made["validation"], made["test"], len(instances))


def _natural(instance: str) -> tuple[str, int]:
    stem, _, number = instance.rpartition("_")
    return stem, int(number)
