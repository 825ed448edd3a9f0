"""Data as people have it: what is read is what is there, and what is wrong is named with its place."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
import torch
from commands import images, table

from posterity.cli.reading import Recipe, Wish, look, read
from posterity.errors import BadData, NoDataSet, NotInstalled


def test_a_table_is_scaled_by_its_own_recipe_and_others_by_the_same(tmp_path):
    first = read(str(table(tmp_path / "a.csv")), Wish(target="price"))
    assert first.recipe.task == "regression"
    assert first.recipe.columns == ("age", "height", "weight")
    assert torch.allclose(first.x.mean(0), torch.zeros(3), atol=1e-4)
    assert torch.allclose(first.x.std(0, correction=0), torch.ones(3), atol=1e-4)
    other = read(str(table(tmp_path / "b.csv", seed=1)), Wish(), Recipe.from_json(first.recipe.to_json()))
    assert float(other.x.mean().abs()) > 1e-3
    assert other.recipe == first.recipe
    unlabelled = tmp_path / "c.csv"
    unlabelled.write_text("weight,age,height\n70,40,170\n")
    alone = read(str(unlabelled), Wish(), first.recipe, labels=False)
    assert alone.y is None
    mean, scale = (torch.tensor(v) for v in (first.recipe.mean, first.recipe.scale))
    assert torch.allclose(alone.x[0], (torch.tensor([40.0, 170.0, 70.0]) - mean) / scale, atol=1e-5)


def test_words_and_few_whole_numbers_are_classes(tmp_path):
    found = read(str(table(tmp_path / "a.csv", words=True)), Wish(target="kind"))
    assert found.classes == ("old", "young")
    (tmp_path / "b.csv").write_text("a,b\n" + "\n".join(f"{i}.5,{i % 3 * 5}" for i in range(30)))
    assert read(str(tmp_path / "b.csv"), Wish(target="b")).classes == ("0", "5", "10")
    assert read(str(tmp_path / "b.csv"), Wish(target="b", task="regression")).classes == ()


BAD = {
    "1,2\n3,4\n": "no header",
    "a,b,y\n1,,2\n3,4,5\n,6,7\n": '"b" lacks 1 (first in row 1); "a" lacks 1 (first in row 3). --missing drop',
    "a,city,y\n1,Rome,2\n": 'row 1: column "city" holds "Rome"',
    "a,a,y\n1,2,3\n": 'two columns "a"',
    "a,b,y\n1,2\n": "row 1: 2 values and 3 columns",
    "a,b\n1,2\n": 'no column "y": it has a, b',
    "": "empty",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_with_a_table_is_named_with_its_place(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(BadData) as caught:
        read(str(path), Wish(target="y"))
    assert BAD[text] in str(caught.value)


def test_rows_with_missing_values_are_left_out_on_request(tmp_path):
    path = table(tmp_path / "t.csv", 20, gaps={(3, 0), (3, 1), (7, 3)})
    found = read(str(path), Wish(target="price", missing="drop"))
    assert len(found.x) == 18
    assert found.notes == ["2 rows with missing values were left out."]


def test_arrays_may_have_words_or_numbers_for_labels_or_none(tmp_path):
    x = np.random.default_rng(0).random((6, 4))
    np.savez(tmp_path / "w.npz", x=x, y=np.array(["b", "a"] * 3))
    assert read(str(tmp_path / "w.npz")).classes == ("a", "b")
    np.savez(tmp_path / "n.npz", x=x, y=x[:, 0])
    found = read(str(tmp_path / "n.npz"))
    assert found.recipe.task == "regression"
    assert torch.allclose(
        found.y[:, 0].double() * found.recipe.target_scale + found.recipe.target_mean, torch.tensor(x[:, 0]), atol=1e-5
    )
    np.savez(tmp_path / "x.npz", x=x)
    assert read(str(tmp_path / "x.npz"), labels=False).y is None
    with pytest.raises(BadData, match="no labels"):
        read(str(tmp_path / "x.npz"))
    assert look(str(tmp_path / "x.npz")).count == 6


def test_images_are_read_in_the_order_of_their_classes(tmp_path):
    pytest.importorskip("PIL")
    found = read(str(images(tmp_path / "i", ["b", "a"], 2)), Wish(size=8))
    assert found.classes == ("a", "b")
    assert found.names == ["a/0.png", "a/1.png", "b/0.png", "b/1.png"]
    assert found.x.shape == (4, 1, 8, 8)
    assert 0 <= float(found.x.min()) <= float(found.x.max()) <= 1
    seen = look(str(tmp_path / "i"), Wish(size=8))
    assert (seen.count, seen.shape, seen.classes) == (4, (1, 8, 8), ("a", "b"))


def test_what_is_wrong_with_a_folder_is_named(tmp_path):
    pytest.importorskip("PIL")
    with pytest.raises(NoDataSet, match="no file or folder"):
        read(str(tmp_path / "nowhere"))
    with pytest.raises(BadData, match="no image"):
        read(str(tmp_path))
    images(tmp_path / "i", ["a"], 1)
    (tmp_path / "i/b").mkdir()
    with pytest.raises(BadData, match=r'folder "b" .* holds no image'):
        read(str(tmp_path / "i"))
    (tmp_path / "i/b/0.png").write_bytes(b"no image")
    with pytest.raises(BadData, match=r"0\.png cannot be read as an image"):
        read(str(tmp_path / "i"))


def test_a_class_that_was_not_learned_is_named(tmp_path):
    path = table(tmp_path / "t.csv", words=True)
    first = read(str(path), Wish(target="kind"))
    with pytest.raises(BadData, match='"young", which is none of those learned: old, new'):
        read(str(path), Wish(), first.recipe, ("old", "new"))


def test_a_hugging_face_data_set_without_datasets_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "dataset_info.json").write_text("{}")
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "datasets":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotInstalled, match="pip install datasets"):
        read(str(tmp_path))


def test_a_hugging_face_data_set_is_read(tmp_path):
    datasets = pytest.importorskip("datasets", reason="Hugging Face data sets need `datasets`")
    made = datasets.Dataset.from_dict({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 0.5], "label": [0, 1, 0]})
    made.cast_column("label", datasets.ClassLabel(names=["no", "yes"])).save_to_disk(str(tmp_path / "set"))
    found = read(str(tmp_path / "set"))
    assert found.classes == ("no", "yes")
    assert found.y.tolist() == [0, 1, 0]
    assert found.x.shape == (3, 2)
    assert look(str(tmp_path / "set")).count == 3
