"""`--groups`: a column that is no input, by which is left out, split and counted."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from commands import answer, call

from posterity.cli.reading import ReadOptions, read
from posterity.errors import BadData, NoDataSet
from posterity.pacbayes.bounds import count_bound

PEOPLE, EACH = 12, 5


def persons(path, seed=0, people=PEOPLE):
    """Five rows of every person, nearly the same, with one kind for all of them."""
    chance = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["person", "a", "b", "c", "kind"])
        for k in range(people):
            centre, kind = chance.normal(size=3), ("cat", "dog")[k % 2]
            for _ in range(EACH):
                out.writerow([f"p{seed}-{k}", *(f"{v:.6f}" for v in centre + 0.1 * chance.normal(size=3)), kind])
    return path


def test_groups_are_no_input_and_certificates_count_them(tmp_path):
    first, second = persons(tmp_path / "a.csv", 1), persons(tmp_path / "b.csv", 2)
    fit = tmp_path / "fit"
    quick = ("--network", "mlp", "--epochs", 3, "--quiet")
    call("learn", first, "--target", "kind", "--groups", "person", "--out", fit, *quick)
    # The fit remembers the column: no one has to name it again, and examples without it certify nothing.
    found = answer("certify", fit, second, "--quiet")
    assert (found["n"], found["unit"], found["examples"]) == (PEOPLE, "group", PEOPLE * EACH)
    assert "learned by groups" in call("certify", fit, "--quiet", code=1).output.replace("\n", " ")
    told = answer("evaluate", fit, second, "--part", "train", "--quiet")
    by_groups = [count_bound(e, PEOPLE, 0.05, grouped=True) for e in np.arange(0, 1.0001, 1 / (PEOPLE * EACH))]
    assert min(abs(told["error_at_most_95"] - bound) for bound in by_groups) < 1e-9
    assert told["error_at_most_95"] > count_bound(1 - told["accuracy"], PEOPLE * EACH, 0.05)
    # New inputs need no such column.
    with second.open() as file:
        rows = [row[1:] for row in csv.reader(file)]
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    call("predict", fit, tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--quiet")
    assert "Did you mean" in call("certify", fit, second, "--groups", "persn", "--quiet", code=1).output


def test_a_split_keeps_groups_whole(tmp_path):
    table = persons(tmp_path / "a.csv")
    first, rest = tmp_path / "first.csv", tmp_path / "rest.csv"
    call("data", "split", table, first, rest, "--share", 0.25, "--groups", "person")
    here, there = ({row["person"] for row in csv.DictReader(path.open())} for path in (first, rest))
    assert (len(here), len(there)) == (3, 9)
    assert not here & there
    refused = call(
        "data", "split", table, first, rest, "--per-class", 2, "--target", "kind", "--groups", "person", code=1
    )
    assert "--share" in refused.output


def test_arrays_have_groups_too_and_images_say_that_they_have_none(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y, who=np.arange(20) // 5, short=np.arange(3))
    found = read(str(tmp_path / "a.npz"), ReadOptions(groups="who"))
    assert found.groups.tolist() == (np.arange(20) // 5).tolist()
    assert found.recipe.groups == "who"
    with pytest.raises(NoDataSet, match='"short" has shape'):
        read(str(tmp_path / "a.npz"), ReadOptions(groups="short"))
    with pytest.raises(BadData, match="--groups names a column"):
        read("mnist", ReadOptions(groups="who"))


def test_a_row_without_a_group_is_named(tmp_path):
    text = persons(tmp_path / "a.csv").read_text().replace("p0-3,", ",", 1)
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(BadData, match=r'line 17.*"person" is missing'):
        read(str(tmp_path / "a.csv"), ReadOptions(target="kind", groups="person"))
