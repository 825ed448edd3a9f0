"""Pictures are decoded when asked for, a damaged one is named, and each public format is read from a miniature."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from posterity.errors import NoDataSet
from posterity_studies.errors import BadPicture
from posterity_studies.shared.datasets import (
    folder_gallery,
    gallery,
    imagenet_samples,
    picture_gallery,
    pictures,
    pixel_gallery,
)


def picture(value, kind="JPEG", size=12):
    file = io.BytesIO()
    Image.new("RGB", (size, size), (value, value, value)).save(file, kind)
    return file.getvalue()


def pack(path, raw, paths, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path, jpeg=np.frombuffer(b"".join(raw), np.uint8), offset=np.cumsum([0, *map(len, raw)]),
        label=np.arange(len(raw), dtype=np.int16) % 2, path=np.array(paths), classes=np.array(["a", "b"]),
        split=np.array(["train"] * (len(raw) - 2) + ["test"] * 2), **more,
    )  # fmt: skip


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERITY_DATA", str(tmp_path))
    return tmp_path


def test_damaged_picture_in_the_middle_is_named_and_can_be_left_out(root):
    raw = [picture(value) for value in (0, 50, 100, 150, 200, 250)]
    raw[2] = raw[2][: len(raw[2]) // 2]
    pack(root / "fewshot" / "mini.npz", raw, [str(i) for i in range(6)])
    with pytest.raises(BadPicture, match="picture 2 of mini cannot be decoded"):
        pictures("mini", size=8)
    found, bad = picture_gallery("mini").decoded(range(6), 8, skip_bad=True)
    assert (len(found), bad) == (5, [2])
    torch.testing.assert_close(found[2].mean(), torch.tensor(150 / 255), atol=0.01, rtol=0)
    left = pictures("mini", size=8, skip_bad=True)
    assert left.train[1].tolist() == [0, 1, 1], "labels stay with their pictures"


def test_near_copies_are_left_out_and_places_stay_those_of_the_file(root):
    paths = ["x/a_1.jpg", "x/crosshatched_0131.jpg", "x/a_2.jpg", "x/crosshatched_0048.jpg", "x/a_3.jpg"]
    pack(root / "fewshot" / "dtd10.npz", [picture(v) for v in (0, 60, 120, 180, 240)], paths)
    found = gallery("dtd")
    assert found.places.tolist() == [0, 2, 4]
    x, _ = found.decoded([1], 8)
    torch.testing.assert_close(x.mean(), torch.tensor(120 / 255), atol=0.01, rtol=0)


def test_offsets_that_do_not_fit_are_refused(root):
    pack(root / "fewshot" / "mini.npz", [picture(0)] * 3, ["a", "b", "c"])
    arrays = dict(np.load(root / "fewshot" / "mini.npz"))
    np.savez(root / "fewshot" / "mini.npz", **arrays | {"offset": arrays["offset"][:-1]})
    with pytest.raises(NoDataSet, match="do not fit together"):
        picture_gallery("mini")


def test_pixels_become_pictures_of_any_size(root):
    (root / "cifar10").mkdir()
    x = np.full((3, 32, 32, 3), 102, np.uint8)
    np.savez(
        root / "cifar10" / "part.npz", x_train=x, y_train=np.arange(3), x_test=x[:2], y_test=np.arange(2),
        classes=np.array(["a", "b", "c"]),
    )  # fmt: skip
    found = pixel_gallery("cifar10")
    assert found.tested.tolist() == [False] * 3 + [True] * 2
    x, _ = found.only(found.tested).decoded([0, 1], 48)
    torch.testing.assert_close(x, torch.full((2, 3, 48, 48), 0.4), atol=1e-6, rtol=0)


def test_imagenet_samples_are_all_for_training(root):
    pack(
        root / "imagenet_samples" / "imagenet_samples_1000.npz",
        [picture(9)] * 4,
        ["x"] * 4,
        wnid_name=np.array(["n"] * 4),
    )
    found = imagenet_samples()
    assert len(found) == 4
    assert not found.tested.any()


def test_cars_are_read_by_their_annotations(root):
    scipy = pytest.importorskip("scipy.io", reason="SciPy reads MATLAB files")
    folder = root / "cars196"
    (folder / "car_ims").mkdir(parents=True)
    kinds = [("relative_im_path", "O"), ("bbox_x1", "O"), ("class", "O"), ("test", "O")]
    rows = np.array([(f"car_ims/{i:06}.jpg", 1, 1 + i % 2, i // 2) for i in range(4)], dtype=kinds)
    scipy.savemat(
        folder / "cars_annos.mat", {"annotations": rows, "class_names": np.array(["one", "two"], dtype=object)}
    )
    for i in range(4):
        (folder / "car_ims" / f"{i:06}.jpg").write_bytes(picture(60 * i))
    found = gallery("cars196")
    assert found.classes == ("one", "two")
    assert found.labels.tolist() == [0, 1, 0, 1]
    assert found.tested.tolist() == [False, False, True, True]
    torch.testing.assert_close(found.decoded([3], 8)[0].mean(), torch.tensor(180 / 255), atol=0.01, rtol=0)
    (folder / "cars_annos.mat").write_bytes(b"nothing")
    with pytest.raises(NoDataSet, match="is not Cars196's annotations"):
        gallery("cars196")


def test_colorectal_histology_is_read_from_the_folder_its_archive_leaves(root):
    for label in ("01_TUMOR", "02_STROMA"):
        folder = root / "colorectal_histology" / "Kather_texture_2016_image_tiles_5000" / label
        folder.mkdir(parents=True)
        for i in range(5):
            (folder / f"{i}.tif").write_bytes(picture(200, "TIFF"))
    found = gallery("colorectal_histology")
    assert found.classes == ("01_TUMOR", "02_STROMA")
    assert found.tested.tolist() == [False] * 4 + [True] + [False] * 4 + [True]
    assert len(folder_gallery("colorectal_histology").images(8).train[0]) == 8


def test_sets_without_colour_pictures_say_so(root):
    with pytest.raises(NoDataSet, match="no colour pictures"):
        gallery("mnist")
