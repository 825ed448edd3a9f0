"""Rows that were learned from are known again after rounding; rows that were not are not taken for them."""

from __future__ import annotations

import numpy as np
import pytest

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
