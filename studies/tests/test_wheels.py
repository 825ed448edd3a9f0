"""The two wheels as a new user meets them: in an empty environment, first the library alone, then the studies beside it."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from posterity_studies import STUDIES

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def call(*command, folder, code=0):
    """What a command prints, run in a folder of its own and without the repository's packages."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "POSTERITY_DATA", "VIRTUAL_ENV")}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env={**inherited, "MPLBACKEND": "Agg"}, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    for project in (ROOT, ROOT / "studies"):
        call(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, project, folder=folder)
    library, studies = folder.glob("posterity_torch-*.whl"), folder.glob("posterity_studies-*.whl")
    return next(library), next(studies)


def test_the_source_distribution_builds_the_same_wheel(wheels, tmp_path):
    """From the sdist alone, as a packager without the repository would."""
    call(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--target",
        tmp_path / "tools",
        "-c",
        ROOT / "constraints.txt",
        "hatchling",
        folder=tmp_path,
    )
    build = (
        f"import os; os.chdir({str(ROOT)!r}); from hatchling.build import build_sdist; build_sdist({str(tmp_path)!r})"
    )
    call(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'tools')!r}); {build}", folder=tmp_path)
    (source,) = tmp_path.glob("posterity_torch-*.tar.gz")
    call(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, source, folder=tmp_path)
    (again,) = tmp_path.glob("posterity_torch-*.whl")
    assert {n for n in names(again) if n.startswith("posterity/")} == {
        n for n in names(wheels[0]) if n.startswith("posterity/")
    }


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory, wheels):
    """An environment with the library's wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", folder, folder=folder)
    call(folder / "bin/python", "-m", "pip", "install", "-c", ROOT / "constraints.txt", wheels[0], folder=folder)
    yield folder / "bin"
    shutil.rmtree(folder)  # two gigabytes


def names(wheel):
    return zipfile.ZipFile(wheel).namelist()


def test_the_library_carries_no_study_and_the_studies_carry_their_results(wheels):
    assert not [name for name in names(wheels[0]) if "stud" in name or name.endswith((".jsonl", ".png"))]
    for study in STUDIES:
        assert f"posterity_studies/results/{study}.jsonl" in names(wheels[1])
        assert f"posterity_studies/results/{study}.png" in names(wheels[1])


def test_the_library_fits_alone_and_the_studies_beside_it_render_the_report(wheels, bin_folder, tmp_path):
    assert "works with torch" in call(bin_folder / "python", ROOT / "packaging" / "smoke.py", folder=tmp_path)
    answer = call(bin_folder / "posterity", "study", "report", folder=tmp_path, code=2)
    assert answer.count("\n") == 1
    assert "pip install posterity-studies" in answer
    assert "network" in call(bin_folder / "posterity", "certify", "--help", folder=tmp_path)
    # The command line on a table, which needs nothing optional; a page says what it needs.
    table = "a,b,y\n" + "\n".join(f"{i % 7},{i % 5},{2 * (i % 7) - i % 5}.5" for i in range(40))
    (tmp_path / "t.csv").write_text(table, encoding="utf-8")
    learn = ["learn", "t.csv", "--target", "y", "--out", "fit", "--epochs", "5", "--quiet"]
    call(bin_folder / "posterity", *learn, folder=tmp_path)
    assert "rmse" in call(bin_folder / "posterity", "evaluate", "fit", "t.csv", "--json", folder=tmp_path)
    said = call(bin_folder / "posterity", "evaluate", "fit", "t.csv", "--page", "p.html", folder=tmp_path, code=1)
    assert "pip install matplotlib" in said
    shutil.rmtree(tmp_path / "fit")
    (tmp_path / "t.csv").unlink()

    call(bin_folder / "python", "-m", "pip", "install", "-c", ROOT / "constraints.txt", wheels[1], folder=tmp_path)
    page = tmp_path / "page.html"
    assert f"Report: {page}" in call(bin_folder / "posterity", "study", "report", "--out", page, folder=tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.count("<section") == len(STUDIES)
    # A study that was declared again has no results for a while, and says so.
    assert text.count("<figure") == len(STUDIES) - text.count("No results yet") > len(STUDIES) / 2
    assert list(tmp_path.iterdir()) == [page]
