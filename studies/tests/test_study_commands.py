"""The command line says what happened, keeps what was done, and shows no traceback for errors it knows."""

from importlib.metadata import version

import pytest
from toy import interrupted, toy
from typer.testing import CliRunner

from posterity import __version__
from posterity.cli import app
from posterity_studies import STUDIES, Preset, find, ledger


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_version():
    assert call("--version").output == f"posterity {__version__}\n"


def test_list_tells_every_study_with_its_claim():
    result = call("study", "list")
    assert result.exit_code == 0
    for study in STUDIES.values():
        assert study.id in result.output
        assert study.claim[:30] in result.output


def test_unknown_study_is_told_the_known_ones():
    for command in ("run", "show"):
        result = call("study", command, "kroneker")
        assert result.exit_code == 1
        assert 'UnknownStudy: there is no study "kroneker": choose one of ' in result.output
        assert "Traceback" not in result.output


def test_show_before_run_says_how_to_get_results(tmp_path):
    result = call("study", "show", "kronecker", "--results", tmp_path)
    assert result.exit_code == 1
    assert "NoResults" in result.output
    assert "posterity study run kronecker" in result.output


def test_run_computes_draws_and_prints_ours_beside_the_papers(tmp_path):
    result = call("study", "run", "kronecker", "--preset", "smoke", "--results", tmp_path)
    assert result.exit_code == 0, result.output
    total = len(find("kronecker").grid[Preset.smoke])
    assert f"kronecker: 0 of {total} cells kept from before" in result.output
    assert f"kronecker: {total} of {total} cells" in result.output
    for part in ("power method", "factor-wise sum", "paper", "sizes 2, 5, 10 only", "1.013", "7.645", "0.793"):
        assert part in result.output
    assert (tmp_path / "kronecker.png").read_bytes().startswith(b"\x89PNG")
    shown = call("study", "show", "kronecker", "--results", tmp_path)
    assert shown.exit_code == 0
    assert shown.output in result.output


def test_quiet_run_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES, "toy", toy())
    result = call("study", "run", "toy", "--results", tmp_path, "--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_only_some_cells_can_be_run_and_the_rest_later(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES, "toy", toy())
    key = next(iter(toy().grid[Preset.cpu][0]))
    value = toy().grid[Preset.cpu][0][key]
    alike = [cell for cell in toy().grid[Preset.cpu] if cell[key] == value]
    result = call("study", "run", "toy", "--results", tmp_path, "--only", f"{key}={value}")
    assert result.exit_code == 0, result.output
    assert len(ledger(toy(), tmp_path).of(toy().cells(Preset.cpu))) == len(alike) < len(toy().grid[Preset.cpu])
    result = call("study", "run", "toy", "--results", tmp_path, "--only", f"{key}=nothing")
    assert result.exit_code == 2
    assert "there are" in result.output


def test_interrupted_run_ends_cleanly_and_says_what_is_kept(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES, "toy", toy(interrupted))
    result = call("study", "run", "toy", "--results", tmp_path)
    assert result.exit_code == 130
    assert "Stopped: 4 of 24 cells are kept in" in result.output
    monkeypatch.setitem(STUDIES, "toy", toy())
    assert "toy: 4 of 24 cells kept from before" in call("study", "run", "toy", "--results", tmp_path).output


def test_damaged_results_are_a_message_and_not_a_traceback(tmp_path):
    (tmp_path / "kronecker.jsonl").write_text("{}\n")
    result = call("study", "show", "kronecker", "--results", tmp_path)
    assert result.exit_code == 1
    assert "DamagedResults" in result.output
    assert "line 1" in result.output
    assert "Traceback" not in result.output


def test_busy_results_are_a_message_too(tmp_path):
    with ledger(find("kronecker"), tmp_path).writing():
        result = call("study", "run", "kronecker", "--preset", "smoke", "--results", tmp_path)
    assert result.exit_code == 1
    assert "ResultsBusy" in result.output


@pytest.mark.parametrize("bad", [["--workers", "0"], ["--preset", "huge"]])
def test_impossible_options_are_refused(bad):
    assert call("study", "run", "kronecker", *bad).exit_code == 2


def test_report_renders_the_results_of_the_package_and_writes_where_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTERITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("posterity_studies.STUDIES", {"kronecker": find("kronecker")})
    for options, path in (([], tmp_path / "cache" / "report.html"), (["--out", "mine/page.html"], "mine/page.html")):
        result = call("study", "report", *options)
        assert result.exit_code == 0, result.output
        assert f"Report: {path}" in result.output
        assert "<figure" in (tmp_path / path).read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "mine"]


def test_both_packages_have_one_version():
    assert version("posterity-studies") == version("posterity-torch") == __version__
