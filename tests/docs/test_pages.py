"""The Python of the README and of the pages in docs/ runs as it stands, on small data made here."""

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
PAGES = sorted(["README.md", *(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))])


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


WITH_PYTHON = [page for page in PAGES if blocks(page)]


def images(count: int, seed: int, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Noise with a bright row for each class: learned in a few steps."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    x = 0.3 * torch.rand(count, 1, 28, 28, generator=generator)
    x[torch.arange(count), 0, 2 * labels + 4] += 0.7
    return x, labels


def task(name: str, seed: int) -> pt.Task:
    return pt.Task(name, images(40, seed, 4), images(20, seed + 1, 4), images(20, seed + 2, 4), classes=4)


@pytest.fixture
def names() -> dict[str, Any]:
    """What a page takes for granted: one namespace for all its blocks, as a reader would have it."""
    torch.manual_seed(0)
    few = images(40, 2)
    return {
        "pt": pt,
        "torch": torch,
        "model": lenet5(),
        "old_data": images(80, 1),
        "few_images": few,
        "images": few,
        "x": images(10, 3)[0],
        "tasks": [images(40, 4), images(40, 5)],
        "learned": pt.learn(lenet5(), images(60, 6), training={"epochs": 5}, progress=False).posterior,
        "stream": pt.Stream("fruit", [task("apple", 10), task("pear", 20)]),
    }


def test_there_is_python_in_the_readme():
    assert "README.md" in WITH_PYTHON


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs(page, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(blocks(page), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
