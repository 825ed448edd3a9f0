"""Features, encoded images and the loop that asks, from the command line."""

import csv

import numpy as np
import pytest
from commands import answer, call, images, table

import posterity as pt

ENCODER = """
import torch

calls = []

def rows():
    def encode(x):
        calls.append(len(x))
        return x.mean(1).flatten(1)[:, ::3]
    return encode

def pair():
    return lambda x: (x.mean(1).flatten(1), 0)

def letters(texts):
    return torch.tensor([[float(text.count(c)) for c in "abcdefgh"] for text in texts])
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("POSTERITY_CACHE", str(tmp_path / "cache"))
    name = f"encoders_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(ENCODER)
    return tmp_path, name


def features(folder, count=30, seed=0, name="x"):
    chance = np.random.default_rng(seed)
    y = np.arange(count) % 3
    x = np.random.default_rng(9).normal(size=(3, 8))[y] + 0.5 * chance.normal(size=(count, 8))
    np.save(folder / f"{name}.npy", x.astype(np.float32))
    words = np.array(["ant", "bee", "cat"])[y]
    with (folder / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["label"], *([word] for word in words)])
    np.save(folder / f"{name}-labels.npy", words)
    return words


def test_features_and_labels_make_a_head(here):
    folder, _ = here
    features(folder)
    said = answer("learn", "--features", "x.npy", "--labels", "x.csv", "--out", "a.fit")
    assert said["classes"] == ["ant", "bee", "cat"]
    assert said["network"] == "head"
    words = features(folder, 30, seed=1, name="new")
    found = answer("predict", "a.fit", "new.npy")["predictions"]
    assert np.mean([row["class"] == word for row, word in zip(found, words, strict=True)]) > 0.8
    assert 0.8 < answer("evaluate", "a.fit", "new.npy", "--labels", "new-labels.npy")["accuracy"] <= 1
    assert pt.load(folder / "a.fit").classes == ("ant", "bee", "cat")


def test_numbers_come_back_in_their_own_units(here):
    folder, _ = here
    features(folder)
    x = np.load(folder / "x.npy")
    np.save(folder / "y.npy", 1000 + 50 * x[:, 0])
    call("learn", "--features", "x.npy", "--labels", "y.npy", "--task", "regression", "--out", "a.fit")
    found = [row["mean"] for row in answer("predict", "a.fit", "x.npy")["predictions"]]
    assert np.abs(np.array(found) - 1000 - 50 * x[:, 0]).max() < 20


def test_a_table_takes_a_head_too(here):
    table(here[0] / "ages.csv", 60, words=True)
    call("learn", "ages.csv", "--target", "kind", "--network", "head", "--out", "a.fit")
    assert answer("evaluate", "a.fit", "ages.csv")["accuracy"] > 0.8


def test_images_go_through_an_encoder_once(here):
    pytest.importorskip("PIL")
    folder, name = here
    images(folder / "pictures", ["a", "b", "c"], 20, size=12)
    encoder = ["--encoder", f"{name}:rows", "--size", "12"]
    call("learn", "pictures", *encoder, "--out", "a.fit")
    assert __import__(name).calls == [32, 28]
    call("learn", "pictures", *encoder, "--out", "b.fit")
    assert __import__(name).calls == [32, 28, 32]  # the first batch tells whether the rest may come from the cache
    assert call("predict", "a.fit", "pictures", code=1).stderr.startswith("UnknownNetwork")
    assert answer("evaluate", "a.fit", "pictures", "--encoder", f"{name}:rows")["accuracy"] > 0.9


def test_rows_of_another_encoder_under_the_same_name_are_not_taken_from_the_cache(here):
    pytest.importorskip("PIL")
    from posterity.cli.reading.encoders import Encoder, encoded

    files = {str(p): p for p in images(here[0] / "pictures", ["a"], 5).rglob("*.png")}
    one, two = (encoded(files, Encoder("mine", 8, lambda x, s=s: s * x.flatten(1)))[0] for s in (1, 2))
    assert np.allclose(two, 2 * one)


@pytest.mark.parametrize(
    ("encoder", "says"),
    [
        ("NAME:pair", "gave tuple for"),
        ("NAME:nothing", "cannot be imported"),
        ("resnet", "is no encoder: give timm:NAME"),
        ("there.onnx", "onnx"),
    ],
)
def test_bad_encoders_are_named(here, encoder, says):
    pytest.importorskip("PIL")
    folder, name = here
    images(folder / "pictures", ["a", "b"], 2)
    found = call("learn", "pictures", "--encoder", encoder.replace("NAME", name), "--out", "a.fit", code=1)
    assert says in found.stderr


def test_photographs_are_not_reduced_to_28_pixels_in_silence(here):
    pytest.importorskip("PIL")
    images(here[0] / "pictures", ["a", "b"], 2, size=160)
    said = call("data", "inspect", "pictures").output
    assert "--encoder makes" in " ".join(said.split())
    assert "--encoder makes" not in " ".join(call("data", "inspect", "pictures", "--size", "28").output.split())


def test_names_are_a_prior_where_an_encoder_reads_them(here):
    folder, name = here
    features(folder)
    said = answer("learn", "--features", "x.npy", "--labels", "x.csv", "--words", f"{name}:letters", "--out", "a.fit")
    assert "head" in said["plan"]["ways"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--features", "x.npy"], "has no labels"),
        (["--features", "x.npy", "--labels", "short.npy"], "29 labels for 30 inputs"),
        (["--features", "x.npy", "--labels", "x.txt"], "is no file of labels"),
        (["x.npy", "--features", "x.npy"], "say where the data is"),
        (["x.npy", "--labels", "x.csv", "--network", "lenet5"], "lenet5 is for images"),
        (["--features", "cut.npy", "--labels", "x.csv"], "cut.npy"),
    ],
)
def test_bad_features_and_labels_are_named(here, arguments, says):
    folder, _ = here
    words = features(folder)
    np.save(folder / "short.npy", words[:-1])
    (folder / "x.txt").write_text("ant")
    (folder / "cut.npy").write_bytes((folder / "x.npy").read_bytes()[:-40])
    assert says in call("learn", *arguments, "--out", "a.fit", code=1).stderr


def test_a_folder_is_labelled_in_a_loop(here):
    pytest.importorskip("PIL")
    folder, name = here
    images(folder / "all", ["a", "b", "c"], 12, size=12)
    flat = folder / "pool"
    flat.mkdir()
    for path in (folder / "all").rglob("*.png"):
        path.rename(flat / f"{path.parent.name}{path.name}")
    ask = ["ask", "pool", "--answers", "answers.csv", "-k", "6", "--encoder", f"{name}:rows", "--size", "12"]
    for labelled in (0, 6, 12):
        said = answer(*ask, "--out", "a.fit")
        assert (said["labelled"], len(said["ask"])) == (labelled, 6)
        with (folder / "answers.csv").open(newline="") as file:
            rows = list(csv.reader(file))
        assert len(rows) == 1 + labelled + 6
        with (folder / "answers.csv").open("w", newline="") as file:
            csv.writer(file).writerows([rows[0], *([path, path[0]] for path, _ in rows[1:])])
    assert said["worth"]["gain"] >= 0
    found = answer("predict", "a.fit", "pool", "--encoder", f"{name}:rows")["predictions"]
    assert np.mean([row["class"] == row["input"][0] for row in found]) > 0.8
    pending = answer(*ask[:3], "answers.csv", *ask[4:])
    assert pending["labelled"] == 18
    assert answer(*ask)["pending"] == 6


def test_a_table_has_a_column_of_answers(here):
    folder, _ = here
    table(folder / "ages.csv", 40, words=True)
    with (folder / "ages.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    kinds = [row[-1] for row in rows]
    for i in range(12, 41):
        rows[i][-1] = ""
    with (folder / "ages.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    said = answer("ask", "ages.csv", "--target", "kind", "-k", "4")
    assert said["labelled"] == 11
    assert len(set(kinds[1:12])) == 2
    assert all(int(row) > 11 for row in said["ask"])


def test_what_cannot_be_asked_is_named(here):
    folder, _ = here
    features(folder, 6)
    assert "a file of their own" in call("ask", "x.npy", code=1).stderr
    (folder / "bad.csv").write_text("input,answer\n99,ant\n")
    assert "line 2" in call("ask", "x.npy", "--answers", "bad.csv", code=1).stderr
    (folder / "all.csv").write_text("input,answer\n" + "".join(f"{i},ant\n" for i in range(1, 7)))
    assert "asked for already" in call("ask", "x.npy", "--answers", "all.csv", code=1).stderr
