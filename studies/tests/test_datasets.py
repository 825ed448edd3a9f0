"""Loaders read each public format from a miniature, refuse what is damaged, and a download is believed by its sha256 alone."""

import gzip
import hashlib
import io
import struct

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from posterity.cli import app
from posterity.errors import NoDataSet
from posterity_studies.shared.datasets import (
    CATALOGUE,
    download,
    grey,
    images,
    load_set,
    per_class,
    picture_folders,
    pictures,
    pixels,
    uci,
)
from posterity_studies.shared.datasets.download import Source, fetch


def idx(array):
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def jpeg(value, size=12):
    image = pytest.importorskip("PIL.Image", reason="Pillow decodes pictures")
    file = io.BytesIO()
    image.new("RGB", (size, size), (value, value, value)).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERITY_DATA", str(tmp_path))
    return tmp_path


def test_idx_files_are_read_packed_or_not(root):
    (root / "mnist").mkdir()
    for part, n in (("train", 5), ("t10k", 3)):
        x, y = np.full((n, 28, 28), 255, np.uint8), np.arange(n, dtype=np.uint8)
        (root / "mnist" / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(x)))
        (root / "mnist" / f"{part}-labels-idx1-ubyte").write_bytes(idx(y))
    found = images("mnist")
    assert found.train[0].shape == (5, 1, 28, 28)
    assert found.train[0].max() == 1
    assert found.test[1].tolist() == [0, 1, 2]


def test_pixels_in_one_file_are_read_and_turned_grey(root):
    (root / "cifar10").mkdir()
    x = np.zeros((4, 32, 32, 3), np.uint8)
    x[..., 1] = 255
    np.savez(root / "cifar10" / "part.npz", x_train=x, y_train=np.arange(4), x_test=x[:2], y_test=np.arange(2))
    found = pixels("cifar10")
    assert found.train[0].shape == (4, 3, 32, 32)
    torch.testing.assert_close(grey(found.test[0]), torch.full((2, 1, 28, 28), 0.587))


def test_encoded_pictures_are_read_from_one_file(root):
    (root / "fewshot").mkdir()
    raw = [jpeg(0), jpeg(255), jpeg(128)]
    np.savez(
        root / "fewshot" / "mini.npz", jpeg=np.frombuffer(b"".join(raw), np.uint8),
        offset=np.cumsum([0, *map(len, raw)]), label=np.array([0, 1, 0], np.int16), split=np.array(["train", "train", "test"]),
        path=np.array(["a", "b", "c"]), classes=np.array(["dark", "light"]),
    )  # fmt: skip
    found = pictures("mini", size=8)
    assert found.train[0].shape == (2, 3, 8, 8)
    assert found.train[0][1].mean() == pytest.approx(1, abs=0.01)
    assert found.test[0].mean() == pytest.approx(128 / 255, abs=0.01)


@pytest.mark.parametrize("parts", [("train", "test"), ("",)])
def test_pictures_in_folders_are_read_with_or_without_parts(root, parts):
    for part in parts:
        for label, value in (("cat", 0), ("dog", 255)):
            folder = root / "wrgbd" / part / label
            folder.mkdir(parents=True)
            for i in range(5):
                (folder / f"{i}.jpg").write_bytes(jpeg(value))
    found = picture_folders("wrgbd", size=8)
    assert len(found.train[1]) == (10 if len(parts) == 2 else 8)
    assert sorted(set(found.test[1].tolist())) == [0, 1]
    assert found.train[0][found.train[1] == 1].mean() > 0.9


def test_uci_split_is_standardised_by_its_training_part_alone(root):
    (root / "uci").mkdir()
    data = np.random.default_rng(0).normal(3, 5, (40, 4))
    data[:, 1] = 7
    splits = np.arange(8).reshape(2, 4)
    np.savez(root / "uci" / "mini.npz", data=data, features=np.arange(3), target=3, test_index=splits)
    found = uci("mini", 1)
    assert (len(found.train[0]), len(found.test[0])) == (36, 4)
    torch.testing.assert_close(found.train[1].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.train[0][:, 0].std(correction=0), torch.tensor(1.0))
    np.testing.assert_allclose(
        found.test[1][:, 0].numpy() * found.scale, data[4:8, 3] - np.delete(data[:, 3], range(4, 8)).mean(), rtol=1e-4
    )
    with pytest.raises(NoDataSet, match="splits 0 to 1"):
        uci("mini", 2)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_named_set_says_what_is_missing(name, root, monkeypatch):
    with pytest.raises(NoDataSet, match=str(root)):
        load_set(name)
    monkeypatch.delenv("POSTERITY_DATA")
    with pytest.raises(NoDataSet, match="POSTERITY_DATA"):
        load_set(name)


def test_file_that_is_no_archive_is_refused(root):
    (root / "cifar10").mkdir()
    (root / "cifar10" / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(NoDataSet, match=r"cannot be read as an \.npz file with the arrays x_train"):
        pixels("cifar10")


def test_download_is_verified_by_contents_and_tries_the_next_mirror(tmp_path):
    good, bad = tmp_path / "good.gz", tmp_path / "bad.gz"
    good.write_bytes(gzip.compress(b"contents", 1))
    bad.write_bytes(gzip.compress(b"other contents"))
    source = Source("x.gz", [bad.as_uri(), good.as_uri()], hashlib.sha256(b"contents").hexdigest())
    path = fetch(source, tmp_path / "set")
    assert gzip.decompress(path.read_bytes()) == b"contents"
    good.unlink()
    assert fetch(source, tmp_path / "set") == path, "what is there and right is not fetched again"


def test_download_leaves_nothing_that_is_not_verified(tmp_path):
    (tmp_path / "bad.gz").write_bytes(gzip.compress(b"other"))
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"contents")[:-4])
    urls = [(tmp_path / name).as_uri() for name in ("bad.gz", "torn.gz", "missing.gz")]
    with pytest.raises(NoDataSet, match="could not be had"):
        fetch(Source("x.gz", urls, hashlib.sha256(b"contents").hexdigest()), tmp_path / "set")
    assert list((tmp_path / "set").iterdir()) == []


def test_set_without_a_public_file_says_where_it_comes_from(root):
    with pytest.raises(NoDataSet, match="Stanford Cars"):
        download("cars196")
    with pytest.raises(NoDataSet, match="no data set"):
        download("mnits")


def test_data_command_lists_every_set():
    result = CliRunner().invoke(app, ["study", "data"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert all(name in result.output for name in CATALOGUE)


def test_few_of_each_class_are_drawn():
    x, y = torch.arange(30.0)[:, None], torch.arange(30) % 3
    kept_x, kept_y = per_class((x, y), 4, torch.Generator().manual_seed(0))
    assert torch.equal(kept_y.bincount(), torch.full((3,), 4))
    assert torch.equal(kept_x[:, 0].long() % 3, kept_y)
