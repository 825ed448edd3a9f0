"""The page on the paper's claims: every row from results or tests, every published figure from one file."""

import re
from pathlib import Path

import pytest

import posterity_studies
from posterity_studies import STUDIES, Preset
from posterity_studies.claims import ROWS, page
from posterity_studies.claims.figures import ABSENT
from posterity_studies.claims.page import BEGIN, END, cells_of, effort, records_in, table
from posterity_studies.folders import SHIPPED
from posterity_studies.shared import published

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper.md"


def test_the_page_is_what_the_results_say():
    if not PAGE.exists():
        pytest.skip("the pages are not beside an installed package")
    written = PAGE.read_text(encoding="utf-8")
    assert written.count(BEGIN) == written.count(END) == 1
    assert page(written, SHIPPED) == written


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.place}: {row.claim[:40]}")
def test_a_row_has_figures_from_results_alone_or_tests_that_exist(row):
    """Without results a row says so, whatever the paper prints."""
    if row.tests:
        for test in row.tests:
            path, _, name = test.partition("::")
            assert re.search(rf"^def {name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), test
        return
    assert row.study in STUDIES
    assert cells_of(row, {})[3:] == [ABSENT] * 3
    assert "**" not in row.claim


def test_every_study_of_the_papers_has_a_row():
    rows = {row.study for row in ROWS}
    assert {name for name, study in STUDIES.items() if study.paper} <= rows


def test_rows_follow_the_records(tmp_path):
    """An empty folder of results makes a page without any figure of ours."""
    assert table(records_in(tmp_path)).count(ABSENT) == 3 * sum(not row.tests for row in ROWS)


def test_what_was_run_is_counted_in_the_results(tmp_path):
    """Every study of the paper's, with the cells that its results file holds of those that were declared."""
    study = STUDIES["kronecker"]
    lines = (SHIPPED / "kronecker.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "kronecker.jsonl").write_text("".join(lines[:7]), encoding="utf-8")
    found = {line.split("]")[0].strip("| ["): line for line in effort(tmp_path).splitlines()[2:]}
    assert found.keys() == {name for name, study in STUDIES.items() if study.paper}
    assert f"| 7 of {len(study.grid[Preset.cpu])} |" in found["kronecker"]
    assert "| 0 of " in found["bounds"]


def test_published_figures_stand_in_one_file():
    printed = {f"{pair.mean:.3f}" for rung in published.BOUNDS.values() for pair in rung.values()}
    printed |= {f"{pair.mean:.5f}" for pair in published.NEAREST.values()}
    package = Path(posterity_studies.__file__).parent
    for path in set(package.glob("**/*.py")) - {Path(published.__file__)}:
        text = path.read_text(encoding="utf-8")
        assert not {figure for figure in printed if re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text)}, path


def test_the_papers_averages_are_of_its_tasks():
    for row in published.STREAM.values():
        *tasks, average = (pair.mean for pair in row)
        assert sum(tasks) / len(tasks) == pytest.approx(average, abs=0.06)
