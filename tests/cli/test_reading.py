"""Data as people have it: what is read is what is there, and what is wrong is named with its place."""

from __future__ import annotations

import builtins
import json

import numpy as np
import pytest
import torch
from commands import images, table

from posterity.cli.reading import DataRecipe, ReadOptions, look, read
from posterity.errors import BadData, NoDataSet, NotInstalled


def written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return str(path)


def test_a_table_is_scaled_by_its_own_recipe_and_others_by_the_same(tmp_path):
    first = read(str(table(tmp_path / "a.csv")), ReadOptions(target="price"))
    assert first.recipe.task == "regression"
    assert first.recipe.names == ("age", "height", "weight")
    assert torch.allclose(first.x.mean(0), torch.zeros(3), atol=1e-4)
    assert torch.allclose(first.x.std(0, correction=0), torch.ones(3), atol=1e-4)
    recipe = DataRecipe.from_json(json.loads(json.dumps(first.recipe.to_json())))
    assert recipe == first.recipe
    other = read(str(table(tmp_path / "b.csv", seed=1)), ReadOptions(), recipe)
    assert float(other.x.mean().abs()) > 1e-3
    assert other.recipe == first.recipe
    alone = read(written(tmp_path / "c.csv", "weight,age,height\n70,40,170\n"), ReadOptions(), recipe, labels=False)
    assert alone.y is None
    mean, scale = (torch.tensor(v) for v in (recipe.mean, recipe.scale))
    assert torch.allclose(alone.x[0], (torch.tensor([40.0, 170.0, 70.0]) - mean) / scale, atol=1e-5)


def test_rows_as_read_are_the_same_whatever_they_are_standardised_by(tmp_path):
    path = table(tmp_path / "a.csv")
    header, first, *rest = path.read_text().splitlines()
    fewer = written(tmp_path / "b.csv", "\n".join([header, *rest]))
    whole, part = read(str(path), ReadOptions(target="price")), read(fewer, ReadOptions(target="price"))
    assert whole.rows.dtype == torch.float64
    assert whole.rows[0].tolist() == [float(cell) for cell in first.split(",")[:3]]
    assert torch.equal(whole.rows[1:], part.rows)
    assert not torch.equal(whole.x[1:], part.x)
    assert torch.equal(whole.x[1:], read(fewer, ReadOptions(), whole.recipe).x)


def test_words_and_few_whole_numbers_are_classes(tmp_path):
    found = read(str(table(tmp_path / "a.csv", words=True)), ReadOptions(target="kind"))
    assert found.classes == ("old", "young")
    path = written(tmp_path / "b.csv", "a,b\n" + "\n".join(f"{i}.5,{i % 3 * 5}" for i in range(30)))
    assert read(path, ReadOptions(target="b")).classes == ("0", "5", "10")
    assert read(path, ReadOptions(target="b", task="regression")).classes == ()


BAD = {
    "1,2\n3,4\n": "no header",
    "a,b,y\n1,,2\n3,4,5\n,6,7\n": '"a" lacks 1 (first in line 4); "b" lacks 1 (first in line 2). --missing drop',
    "a,c,y\n1,2,2\n1,3O,3\n": 'column "c" holds "3O" in line 3, which is no number, beside 1 numbers (mend it, or --text c',
    "a,c,y\n1,,2\n1,,3\n": 'column "c" holds no value',
    "a,c,y\n,2001-02-03,2\n1,2001-02-04,3\n": 'column "c" holds dates',
    "a,a,y\n1,2,3\n": 'two columns "a"',
    "a,b,y\n1,2\n": "line 2: 2 values and 3 columns",
    "a,year\n1,2\n": '--target "y": ',
    "a,yy\n1,2\n": 'has no column "y": it has a, yy. Did you mean "yy"?',
    'a,y\n1,"2\n3,4\n': "line 3: unexpected end of data. Is a quotation mark open?",
    "a,y\n1,\x002\n": "line 2: the character U+0000 is not text",
    "a,y\n": "no row below its header",
    "y\n1\n": 'no column beside "y"',
    "": "empty",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_with_a_table_is_named_with_its_place(tmp_path, text):
    path = written(tmp_path / "t.csv", text)
    with pytest.raises(BadData) as caught:
        read(path, ReadOptions(target="y"))
    assert BAD[text] in str(caught.value)
    assert path in str(caught.value)


def test_a_table_without_a_target_asks_for_one_before_anything_else(tmp_path):
    path = written(tmp_path / "t.csv", "name,born,price\nAnn,2001-02-03,5\n")
    with pytest.raises(BadData, match=r"with --target\. It has name, born, price"):
        read(path)


def test_missing_values_follow_the_rule_that_the_recipe_keeps(tmp_path):
    path = table(tmp_path / "t.csv", 20, gaps={(3, 0), (3, 1), (7, 3)})
    dropped = read(str(path), ReadOptions(target="price", missing="drop"))
    assert len(dropped.x) == 18
    assert dropped.names[3:7] == ["5", "6", "7", "9"]
    assert dropped.notes == ["2 rows with missing values were left out."]
    filled = read(str(path), ReadOptions(target="price", missing="mean"))
    assert len(filled.x) == 19  # a target is never filled in
    assert filled.x[3, :2].abs().max() < 1e-6
    assert filled.rows[3, 0] == pytest.approx(filled.recipe.mean[0])
    assert filled.notes[1] == "2 missing values were filled in with the mean of their column (text: no category)."
    new = written(tmp_path / "new.csv", "age,height,weight\n?,170,70\n")
    assert read(new, ReadOptions(), filled.recipe, labels=False).x[0, 0] == 0
    with pytest.raises(BadData, match="no row without missing values"):
        read(new, ReadOptions(), dropped.recipe, labels=False)


CITIES = "size,city,price\n1,Köln,5\n2,Oslo,6\n4,Köln,7.5\n5,Bern,9\n"


def test_text_columns_are_one_input_a_category_and_read_the_same_in_new_tables(tmp_path):
    first = read(written(tmp_path / "a.csv", CITIES), ReadOptions(target="price", task="regression"))
    assert first.recipe.inputs == ("size", "city=Bern", "city=Köln", "city=Oslo")
    assert first.x[:, 1:].tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert (
        "text columns",
        "city (Bern, Köln, Oslo): 0 or 1 for each; any other text is 0 in all",
    ) in first.recipe.rows()
    recipe = DataRecipe.from_json(json.loads(json.dumps(first.recipe.to_json())))
    turned = "price,city,size\n" + "".join(",".join(reversed(row.split(","))) + "\n" for row in CITIES.split("\n")[1:5])
    assert torch.equal(read(written(tmp_path / "b.csv", turned), ReadOptions(), recipe).x, first.x)
    new = read(written(tmp_path / "c.csv", "city,size\nRome,1\nBern,2\n"), ReadOptions(), recipe, labels=False)
    assert new.x[:, 1:].tolist() == [[0, 0, 0], [1, 0, 0]]
    assert new.notes == [
        'column "city": 1 of 2 rows hold text that was not learned from ("Rome"): they are 0 in all its categories.'
    ]
    with pytest.raises(BadData, match='lacks the column "city" that was learned from: it has size'):
        read(written(tmp_path / "d.csv", "size\n1\n"), ReadOptions(), recipe, labels=False)
    with pytest.raises(BadData, match=r'line 2: column "size" holds "big", which is no number'):
        read(written(tmp_path / "e.csv", "size,city\nbig,Oslo\n"), ReadOptions(), recipe, labels=False)


def test_new_inputs_may_lack_the_target_or_have_gaps_in_it(tmp_path):
    recipe = read(written(tmp_path / "a.csv", CITIES), ReadOptions(target="price")).recipe
    for text in ("size,city\n1,Oslo\n2,Bern\n", "size,price,city\n1,,Oslo\n2,NA,Bern\n"):
        found = read(written(tmp_path / "b.csv", text), ReadOptions(), recipe, labels=False)
        assert found.y is None
        assert len(found.x) == 2
    with pytest.raises(BadData, match=r'--target "price": .* has no column'):
        read(written(tmp_path / "b.csv", "size,city\n1,Oslo\n"), ReadOptions(), recipe)


def test_the_target_is_no_input(tmp_path):
    with pytest.raises(BadData, match='--columns names the target "price"'):
        read(written(tmp_path / "a.csv", CITIES), ReadOptions(target="price", columns=("size", "price")))


def test_numbers_are_text_where_the_user_says_so(tmp_path):
    path = written(tmp_path / "a.csv", "zip,y\n01,5.5\n1,6.5\n01,7.5\n")
    found = read(path, ReadOptions(target="y", text=("zip",)))
    assert found.recipe.inputs == ("zip=01", "zip=1")
    with pytest.raises(BadData, match=r'--text "zap": .* Did you mean "zip"'):
        read(path, ReadOptions(target="y", text=("zap",)))


DATES = [
    "2024-01-31",
    "31.1.2024",
    "1/31/24",
    "2024-01-31T12:00:00Z",
    "31 Jan 2024",
    "January 31, 2024",
    "12:30",
    "2024/1",
]


@pytest.mark.parametrize("date", DATES)
def test_dates_are_refused_by_name(tmp_path, date):
    path = written(tmp_path / "a.csv", f'sold,size,price\n"{date}",1,2\n"{date}",2,3\n')
    with pytest.raises(BadData) as caught:
        read(path, ReadOptions(target="price"))
    assert f'column "sold" holds dates ("{date}" in line 2)' in str(caught.value)
    assert "--columns size leaves them out" in str(caught.value)


@pytest.mark.parametrize("word", ["1.2.3", "red", "A-12", "12b", "May"])
def test_words_are_no_dates(tmp_path, word):
    path = written(tmp_path / "a.csv", f"what,price\n{word},2\nx,3\n{word},5\n")
    assert read(path, ReadOptions(target="price")).recipe.columns[0].categories == tuple(sorted((word, "x")))


def test_all_columns_that_cannot_be_used_are_named_at_once(tmp_path):
    rows = [f"n{i},{i},2020-01-{i % 28 + 1},{i % 7}" for i in range(101)]
    path = written(tmp_path / "a.csv", "\n".join(["name,size,day,price", *rows]))
    with pytest.raises(BadData) as caught:
        read(path, ReadOptions(target="price"))
    assert 'column "name" holds 101 different texts ("n0" in line 2), more than 100; column "day" holds dates' in str(
        caught.value
    )
    assert read(path, ReadOptions(target="price", columns=("size",))).x.shape == (101, 1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_the_same_table_in_another_encoding_is_the_same(tmp_path, encoding):
    options = ReadOptions(target="price")
    plain = read(written(tmp_path / "a.csv", CITIES), options)
    found = read(written(tmp_path / "b.csv", CITIES, encoding), options)
    assert torch.equal(found.x, plain.x)
    assert found.recipe == plain.recipe
    assert found.notes == (
        ["byte 19 (line 2) is not UTF-8: the file was read as Latin-1 (Windows-1252)."]
        if encoding in ("latin-1", "cp1252")
        else []
    )


@pytest.mark.parametrize(("name", "delimiter"), [("b.csv", ";"), ("b.tsv", "\t"), ("b.CSV", "\t")])
def test_columns_may_be_parted_by_semicolons_or_tabs(tmp_path, name, delimiter):
    options = ReadOptions(target="price")
    plain = read(written(tmp_path / "a.csv", CITIES), options)
    assert torch.equal(read(written(tmp_path / name, CITIES.replace(",", delimiter)), options).x, plain.x)


def test_a_column_without_a_name_is_left_out_and_said(tmp_path):
    found = read(written(tmp_path / "a.csv", ",a,y\n0,5,1.5\n1,6,2.5\n\n,,\n"), ReadOptions(target="y"))
    assert found.recipe.names == ("a",)
    assert len(found.x) == 2
    assert found.notes == ["column 1 has no name and was left out (pandas writes its index so)."]


def test_a_parquet_table_is_read_as_its_text_would_be(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (posterity-torch[parquet])")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "size": pa.array([1, 2, 4, None], pa.int32()),
        "city": pa.array(["Köln", "Oslo", "Köln", "Bern"]).dictionary_encode(),
        "new": pa.array([True, False, None, True]),
        "price": [5.0, 6.0, 7.5, 9.0],
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    text = "size,city,new,price\n1,Köln,1,5\n2,Oslo,0,6\n4,Köln,,7.5\n,Bern,1,9\n"
    options = ReadOptions(target="price", missing="mean")
    found, plain = read(str(tmp_path / "a.parquet"), options), read(written(tmp_path / "a.csv", text), options)
    assert torch.equal(found.x, plain.x)
    assert found.recipe == plain.recipe
    assert look(str(tmp_path / "a.parquet"), options).shape == (5,)
    columns |= {"day": pa.array([0, 1, 2, 3], pa.date32()), "track": [[1.0], [2.0], [3.0], [4.0]]}
    parquet.write_table(pa.table(columns), tmp_path / "b.parquet")
    with pytest.raises(BadData, match=r'column "day" holds dates or times.*; column "track" holds list<.* neither'):
        read(str(tmp_path / "b.parquet"), options)


@pytest.mark.parametrize("name", ["", "__index_level_0__"])
def test_the_index_that_pandas_writes_into_parquet_is_left_out(tmp_path, name):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (posterity-torch[parquet])")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({name: [0, 1], "a": [1.0, 2.0], "y": [0.5, 0.7]}), tmp_path / "a.parquet")
    found = read(str(tmp_path / "a.parquet"), ReadOptions(target="y"))
    assert found.x.shape == (2, 1)
    assert any("has no name and was left out" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "package"), [("a.parquet", "pyarrow"), ("set/dataset_info.json", "datasets"), ("i/a.png", "PIL")]
)
def test_what_is_not_installed_is_named(tmp_path, monkeypatch, name, package):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotInstalled, match=f"pip install {'pillow' if package == 'PIL' else package}"):
        read(str(path if path.suffix == ".parquet" else path.parent))


def test_a_damaged_recipe_is_refused(tmp_path):
    good = read(written(tmp_path / "a.csv", CITIES), ReadOptions(target="price")).recipe.to_json()
    for change in (
        {"mean": [0.0]},
        {"scale": [0.0, 1.0, 1.0, 1.0]},
        {"shape": [3]},
        {"missing": "guess"},
        {"columns": ["size"]},
        {"target_scale": float("nan")},
    ):
        with pytest.raises(BadData, match="recipe for reading data is damaged"):
            DataRecipe.from_json(good | change)


def test_numbers_beyond_single_precision_are_refused_with_their_place(tmp_path):
    first = read(written(tmp_path / "a.csv", "a,y\n1,1.5\n2,2.5\n"), ReadOptions(target="y"))
    with pytest.raises(BadData, match='input 2, column "a": 1e\\+200 is no number that a network can take'):
        read(written(tmp_path / "b.csv", "a\n1\n1e200\n"), ReadOptions(), first.recipe, labels=False)
    with pytest.raises(BadData, match='column "a" are too large'):
        read(written(tmp_path / "c.csv", "a,y\n1e308,1.5\n-1e308,2.5\n"), ReadOptions(target="y"))


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
    found = read(str(images(tmp_path / "i", ["b", "a"], 2)), ReadOptions(size=8))
    assert found.classes == ("a", "b")
    assert found.names == ["a/0.png", "a/1.png", "b/0.png", "b/1.png"]
    assert found.x.shape == (4, 1, 8, 8)
    assert 0 <= float(found.x.min()) <= float(found.x.max()) <= 1
    seen = look(str(tmp_path / "i"), ReadOptions(size=8))
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
    first = read(str(path), ReadOptions(target="kind"))
    with pytest.raises(BadData, match='"young", which is none of those learned: old, new'):
        read(str(path), ReadOptions(), first.recipe, ("old", "new"))


def test_a_hugging_face_data_set_is_read(tmp_path):
    datasets = pytest.importorskip("datasets", reason="Hugging Face data sets need `datasets`")
    made = datasets.Dataset.from_dict({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 0.5], "label": [0, 1, 0]})
    made.cast_column("label", datasets.ClassLabel(names=["no", "yes"])).save_to_disk(str(tmp_path / "set"))
    found = read(str(tmp_path / "set"))
    assert found.classes == ("no", "yes")
    assert found.y.tolist() == [0, 1, 0]
    assert found.x.shape == (3, 2)
    assert look(str(tmp_path / "set")).count == 3
