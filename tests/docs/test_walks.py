"""The page of jobs beside laplace-torch shows its results, and counts the lines of the scripts as they are."""

from __future__ import annotations

import json

import pytest

from benchmarks.walks.__main__ import HERE, JOBS, PAGE, RESULTS, lines, table

ROWS = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]


def test_the_page_shows_the_results():
    assert table(ROWS) in PAGE.read_text("utf-8")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['job']}, {row['library']}, {row['tuning']}, {row['seed']}")
def test_the_lines_are_those_of_the_script(row):
    who = "ours" if row["library"] == "posterity" else "theirs"
    assert row["lines"] == lines(next(HERE.glob(f"{row['job']}_{who}.*")))
    assert row["job"] in JOBS


def test_blank_lines_comments_and_docstrings_are_not_counted(tmp_path):
    (tmp_path / "a.py").write_text(
        '"""What it is.\n\nMore.\n"""\n\nimport x\n# why\ndef f():\n    """Told."""\n    return 1\n'
    )
    assert lines(tmp_path / "a.py") == 3
    (tmp_path / "a.sh").write_text("# a job\n\nposterity learn a\nposterity predict a\n")
    assert lines(tmp_path / "a.sh") == 2
