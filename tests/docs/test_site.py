"""The documentation site builds without a warning, and its API pages leave no public name out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import posterity as pt
from posterity.deprecated import MOVED, RENAMED

ROOT = Path(__file__).parents[2]
API = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))


PARTS = ("curvature", "metrics", "pacbayes", "plot", "zoo")
NAMES = [name for name in pt.__all__ if name not in ("__version__", "PosterityError", *PARTS)]
MOVED_NAMES = [f"{part}.{RENAMED.get(part, {}).get(name, name)}" for part, names in MOVED.items() for name in names]


@pytest.mark.parametrize("name", [*NAMES, "zoo", *MOVED_NAMES, *(f"plot.{name}" for name in pt.plot.__all__)])
def test_every_public_name_has_its_place_in_the_reference(name):
    # A name may be listed by the file that it is defined in.
    last = re.escape(name.split(".")[-1])
    assert re.search(rf"^::: posterity\.(?:\w+\.)*{last}$", API, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("mkdocstrings"), reason="the site is built with posterity-torch[docs]")
def test_the_site_builds_without_a_warning_or_a_broken_link(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert "<svg" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    # A function whose file has its name is shown as itself: as a module it would bring all its private parts along.
    for page in (tmp_path / "site" / "api").glob("*.html"):
        shown = re.findall(r'<h\d id="?([\w.]+)"?[^>]*>\s*<code class="[^"]*doc-symbol-module', page.read_text("utf-8"))
        assert set(shown) <= {"posterity.zoo"}, page
    # Nothing is loaded from elsewhere: the site works without a network.
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.search(r"<(?:script|img|link)[^>]+(?:src|href)=[\"']?(?:https?:)?//", page.read_text("utf-8")), (
            page
        )
