"""Rows that were learned from are known again after rounding; rows that were not are not taken for them."""

from __future__ import annotations

import numpy as np
import pytest
from commands import answer, call

from posterity.cli.reading import ReadOptions, read
from posterity.cli.reading.seen import SeenRows
from posterity.errors import BadData


def written(path, x, decimals=9):
    names = [f"c{k}" for k in range(x.shape[1])]
    rows = [",".join([*(f"{v:.{decimals}f}" for v in row), str(i % 2)]) for i, row in enumerate(x)]
    path.write_text("\n".join([",".join([*names, "y"]), *rows]))
    return str(path)


@pytest.mark.parametrize("columns", [4, 13])
@pytest.mark.parametrize("decimals", [9, 3, 2])
def test_a_table_that_was_rounded_is_known_again(tmp_path, columns, decimals):
    x = np.random.default_rng(0).normal(size=(300, columns)) * 3 + 1
    first = read(written(tmp_path / "a.csv", x), ReadOptions(target="y"))
    known = SeenRows.from_json(SeenRows.of(first).to_json())
    again = read(written(tmp_path / "b.csv", x[5:205], decimals), ReadOptions(), first.recipe)
    assert known.among(again) == pytest.approx(200, abs=2 if decimals > 2 else 30)


@pytest.mark.parametrize("columns", [1, 2, 3, 8])
def test_new_rows_of_the_same_kind_are_not_taken_for_old_ones(tmp_path, columns):
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(800, columns))
        first = read(written(tmp_path / "a.csv", x[:700]), ReadOptions(target="y"))
        assert SeenRows.of(first).among(read(written(tmp_path / "b.csv", x[700:]), ReadOptions(), first.recipe)) == 0


def test_repeated_values_of_a_small_discrete_table_are_no_evidence(tmp_path):
    x = np.random.default_rng(0).integers(0, 2, (200, 3)).astype(float)
    first = read(written(tmp_path / "a.csv", x[:100], 0), ReadOptions(target="y"))
    assert SeenRows.of(first).among(read(written(tmp_path / "b.csv", x[100:], 0), ReadOptions(), first.recipe)) == 0


def test_a_part_of_old_rows_among_new_ones_is_counted(tmp_path):
    x = np.random.default_rng(0).normal(size=(600, 6))
    first = read(written(tmp_path / "a.csv", x[:400]), ReadOptions(target="y"))
    mixed = read(written(tmp_path / "b.csv", x[350:], 3), ReadOptions(), first.recipe)
    assert SeenRows.of(first).among(mixed) == pytest.approx(50, abs=2)


def test_damaged_hashes_are_refused():
    for text in ("!", "AAAA", "é"):
        with pytest.raises(BadData, match="are damaged"):
            SeenRows.from_json(text)


def test_rows_that_were_learned_from_are_known_again_by_the_commands(tmp_path):
    """The learned table less one row, and rewritten with three decimals: standardised again they would have other numbers."""
    x = np.random.default_rng(0).normal(size=(60, 4)) * 3 + 1
    learned, less, rounded, new = (str(tmp_path / f"{name}.csv") for name in ("learned", "less", "rounded", "new"))
    for path, rows, decimals in ((learned, x, 9), (less, x[1:], 9), (rounded, x, 3)):
        written(tmp_path / path, rows, decimals)
    written(tmp_path / new, np.random.default_rng(1).normal(size=(60, 4)) * 3 + 1)
    quick = ("--target", "y", "--network", "mlp", "--epochs", 2, "--quiet")
    prior, fit = tmp_path / "prior", tmp_path / "fit"
    call("prior", "learn", learned, "--out", prior, *quick)
    call("learn", learned, "--out", fit, *quick)
    for again in (less, rounded):
        assert "learned from" in call("certify", prior, again, "--quiet", code=3).output.replace("\n", " ")
        told = call("evaluate", fit, again, "--part", "train", "--quiet").output.replace("\n", " ")
        assert "among those learned from" in " ".join(told.split())
        assert "error_at_most_95" not in answer("evaluate", fit, again, "--part", "train", "--quiet")
    assert answer("certify", prior, new, "--quiet")["n"] == 60
    assert 0 < answer("evaluate", fit, new, "--part", "train", "--quiet")["error_at_most_95"] < 1
