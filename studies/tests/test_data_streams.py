"""Streams of real data, and the loader of the Washington RGB-D objects on a miniature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from posterity.errors import NoDataSet
from posterity_studies.shared.datasets import data_root
from posterity_studies.shared.streams import _rank_within_class, mixed, split
from posterity_studies.shared.washington import LATER, Washington

real = pytest.mark.skipif(data_root() is None, reason="real data is read from POSTERITY_DATA")


def write(root: Path, category: str, instance: int, view: int, frames: int, value: int) -> None:
    folder = root / category / f"{category}_{instance}"
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(frames):
        name = f"{category}_{instance}_{view}_{1 + 5 * k}"
        Image.fromarray(np.full((6, 9, 3), value, np.uint8)).save(folder / f"{name}_crop.png")
        Image.fromarray(np.zeros((6, 9), np.uint8)).save(folder / f"{name}_depthcrop.png")
        Image.fromarray(np.zeros((6, 9), np.uint8)).save(folder / f"{name}_maskcrop.png")
        (folder / f"{name}_loc.txt").write_text("1,1")


@pytest.fixture
def miniature(tmp_path: Path) -> Path:
    for category in (*LATER, "ball", "food_can"):
        for instance in (1, 2, 10):
            for view in (1, 2, 4):
                write(tmp_path, category, instance, view, frames=6, value=10 * instance)
    return tmp_path


def test_washington_comes_in_the_papers_order(miniature: Path) -> None:
    stream = Washington(miniature).stream(size=8)
    assert [task.name for task in stream] == ["other", "banana", "coffee_mug", "stapler", "flashlight", "apple"]
    assert [task.classes for task in stream] == [6, 3, 3, 3, 3, 3]


def test_washington_is_split_by_view(miniature: Path) -> None:
    apple = Washington(miniature).stream(size=8)[5]
    # Three instances; of six frames each of views 1 and 4, the first and the sixth are for validation.
    assert len(apple.test) == 18  # type: ignore[arg-type]
    assert len(apple.validation) == 3 * 2 * 2  # type: ignore[arg-type]
    assert len(apple.train) == 3 * 2 * 4  # type: ignore[arg-type]
    assert all(frame.view == 2 for frame in apple.test.frames)  # type: ignore[union-attr]
    used = [f.path for part in (apple.train, apple.validation, apple.test) for f in part.frames]  # type: ignore[union-attr]
    assert len(set(used)) == len(used) == 54
    apple.check()


def test_washington_reads_images_and_the_instances_number(miniature: Path) -> None:
    x, label = Washington(miniature).stream(size=8)[1].train[0]  # type: ignore[index]
    assert x.shape == (3, 8, 8)
    assert label == 0
    torch.testing.assert_close(x, torch.full((3, 8, 8), 10 / 255), rtol=0, atol=1e-6)
    labels = {f.instance: k for f, (_, k) in zip(*_frames(miniature), strict=True)}
    assert labels == {"banana_1": 0, "banana_2": 1, "banana_10": 2}


def _frames(root: Path):  # type: ignore[no-untyped-def]
    train = Washington(root).stream(size=8)[1].train
    return train.frames, [train[k] for k in range(len(train))]  # type: ignore[union-attr, arg-type, index]


def test_a_folder_that_is_not_washington_is_refused(tmp_path: Path, miniature: Path) -> None:
    with pytest.raises(NoDataSet, match="is not a folder"):
        Washington(tmp_path / "nowhere").stream()
    (tmp_path / "empty" / "apple").mkdir(parents=True)
    with pytest.raises(NoDataSet, match="_crop"):
        Washington(tmp_path / "empty").stream()
    write(tmp_path / "few", "apple", 1, 1, 6, 1)
    with pytest.raises(NoDataSet, match="lacks the categories"):
        Washington(tmp_path / "few").stream()


def test_ranks_count_within_each_class() -> None:
    assert _rank_within_class(torch.tensor([2, 0, 2, 2, 0])).tolist() == [0, 0, 1, 2, 1]


@real
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_split_sets_have_five_tasks_of_two_classes(name: str) -> None:
    stream = split(name, seed=0, shots=3, held=4, tested=5)
    assert [task.classes for task in stream] == [2] * 5
    for task in stream:
        task.check()
        assert [len(part[1]) for part in (task.train, task.validation, task.test)] == [6, 8, 10]  # type: ignore[index]
        assert sorted(task.train[1].tolist()) == [0, 0, 0, 1, 1, 1]  # type: ignore[index]


@real
def test_mixed_streams_have_ten_classes_a_task() -> None:
    stream = mixed(0, shots=2, held=2, tested=2)
    assert [t.name for t in stream] == ["mnist", "fashion_mnist", "notmnist"]
    assert [(t.classes, len(t.train[1])) for t in stream] == [(10, 20)] * 3  # type: ignore[index]
