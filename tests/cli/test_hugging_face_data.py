"""Data sets that `datasets` saved to disk, read as any other data."""

from __future__ import annotations

import numpy as np
import pytest
from commands import answer, call

from posterity.cli.reading import ReadOptions, look, read
from posterity.errors import BadData

datasets = pytest.importorskip("datasets", reason="datasets is not installed (posterity-torch[datasets])")


def measured(rows: int, seed: int) -> dict[str, list]:
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(rows, 2)) * (10, 0.1) + (50, 3)
    return {
        "length": x[:, 0].tolist(),
        "width": x[:, 1].tolist(),
        "species": [int(v > 50) for v in x[:, 0]],
        "price": (x[:, 0] * 2).tolist(),
    }


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    """Two parts, with named classes."""
    features = datasets.Features(
        length=datasets.Value("float32"),
        width=datasets.Value("float32"),
        species=datasets.ClassLabel(names=["small", "large"]),
        price=datasets.Value("float64"),
    )
    parts = {
        name: datasets.Dataset.from_dict(measured(30, seed), features) for seed, name in enumerate(("train", "test"))
    }
    folder = tmp_path_factory.mktemp("data") / "flowers"
    datasets.DatasetDict(parts).save_to_disk(str(folder))
    return folder


def test_a_table_is_read_by_columns_parts_and_names_of_classes(flowers):
    found = read(str(flowers), ReadOptions(target="species", columns=("length", "width")))
    assert found.classes == ("small", "large")
    assert found.x.shape == (30, 2)
    assert float(found.x.mean().abs()) < 1e-4  # scaled like any table
    seen = look(str(flowers), ReadOptions(target="species", columns=("length", "width")))
    assert (seen.count, seen.shape, seen.classes) == (30, (2,), ("small", "large"))
    price = read(str(flowers), ReadOptions(target="price", columns=("length", "width")))
    assert price.recipe.task == "regression"
    other = read(str(flowers), ReadOptions(part="test"), price.recipe)
    assert not np.allclose(other.x, price.x)


def test_from_a_data_set_to_predictions(flowers, tmp_path):
    fit, out = tmp_path / "fit", tmp_path / "predictions.csv"
    columns = ("--target", "species", "--columns", "length,width")
    answer("learn", flowers, "--out", fit, "--network", "mlp", "--epochs", 30, *columns)
    found = answer("evaluate", fit, flowers)
    assert found["accuracy"] > 0.8
    assert 1 - found["accuracy"] < found["error_at_most_95"] < 1 - found["accuracy"] + 0.25
    learned_from = call("evaluate", fit, flowers, "--part", "train")
    assert "30 of these examples are among those learned from" in learned_from.stdout
    assert "at most" not in learned_from.stdout
    unlabelled = datasets.Dataset.from_dict({k: v for k, v in measured(5, 3).items() if k in ("length", "width")})
    unlabelled.save_to_disk(str(tmp_path / "new"))
    call("predict", fit, tmp_path / "new", "--out", out)
    assert out.read_text().splitlines()[0].startswith("input,class,confidence")
    assert len(out.read_text().splitlines()) == 6


def test_images_keep_their_colours_and_arrays_their_shape(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (posterity-torch[images])")
    chance = np.random.default_rng(0)
    pictures = [image.fromarray(chance.integers(0, 255, (9, 9, 3), dtype=np.uint8)) for _ in range(4)]
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["a", "b"]))
    made = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1, 0, 1]}, features)
    made.save_to_disk(str(tmp_path / "pictures"))
    found = read(str(tmp_path / "pictures"), ReadOptions(size=6))
    assert found.x.shape == (4, 3, 6, 6)
    assert look(str(tmp_path / "pictures"), ReadOptions(size=6)).shape == (3, 6, 6)
    assert 0 <= float(found.x.min()) < float(found.x.max()) <= 1
    grids = datasets.Dataset.from_dict({"grid": chance.normal(size=(4, 2, 3)).tolist(), "label": ["x", "y", "x", "y"]})
    grids.save_to_disk(str(tmp_path / "grids"))
    assert read(str(tmp_path / "grids"), ReadOptions()).x.shape == (4, 2, 3)
    assert look(str(tmp_path / "grids"), ReadOptions()).shape == (2, 3)


WRONG = [
    ({"a": [1.0, None], "label": [0, 1]}, ReadOptions(), '"a" lacks 1 (first in row 2)'),
    ({"a": [1.0, 2.0], "label": [0, None]}, ReadOptions(), '"label" lacks 1 (first in row 2)'),
    ({"a": [[1.0], [1.0, 2.0]], "label": [0, 1]}, ReadOptions(), "arrays of different lengths"),
    ({"a": [[1.0], [2.0]], "b": [1.0, 2.0], "label": [0, 1]}, ReadOptions(), 'column "a" holds list<'),
    ({"a": [1.0, 2.0], "label": [0, 1]}, ReadOptions(target="kind"), '--target "kind": '),
]


@pytest.mark.parametrize(("columns", "options", "told"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_wrong_is_named_with_its_place(columns, options, told, tmp_path):
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "bad"))
    with pytest.raises(BadData) as caught:
        read(str(tmp_path / "bad"), options)
    assert told in str(caught.value)


def test_text_columns_are_those_of_any_table(tmp_path):
    columns = {"a": ["red", "blue", "red"], "b": [1.0, 2.0, 4.0], "label": [0, 1, 0]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "set"))
    found = read(str(tmp_path / "set"))
    assert found.recipe.inputs == ("a=blue", "a=red", "b")
    assert found.x[:, :2].tolist() == [[0, 1], [1, 0], [0, 1]]
    assert look(str(tmp_path / "set")).shape == (3,)


def test_a_part_that_is_not_there_is_named(flowers):
    with pytest.raises(BadData, match='has the parts train, test and no "validation"'):
        read(str(flowers), ReadOptions(part="validation"))
