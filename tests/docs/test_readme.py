"""The README's Python runs as it stands, on small data made here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import posterity as pt
from posterity.lenet import lenet5

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def images(count: int, seed: int, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Noise with a bright row for each class: learned in a few steps."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    x = 0.3 * torch.rand(count, 1, 28, 28, generator=generator)
    x[torch.arange(count), 0, 2 * labels + 4] += 0.7
    return x, labels


def task(name: str, seed: int) -> pt.Task:
    return pt.Task(name, images(40, seed, 4), images(20, seed + 1, 4), images(20, seed + 2, 4), classes=4)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the README takes for granted: one namespace for all its blocks, as a reader would have it."""
    torch.manual_seed(0)
    model = lenet5()
    return {
        "pt": pt,
        "torch": torch,
        "model": model,
        "old_data": images(80, 1),
        "few_images": images(40, 2),
        "x": images(10, 3)[0],
        "tasks": [images(40, 4), images(40, 5)],
        "learned": pt.isotropic(lenet5(), 10.0, "model"),
        "stream": pt.Stream("fruit", [task("apple", 10), task("pear", 20)]),
    }


def test_there_is_python_in_the_readme():
    assert BLOCKS


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_readme_runs(names, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], f"README.md, block {number + 1}", "exec"), names)
