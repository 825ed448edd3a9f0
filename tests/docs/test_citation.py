"""What others cite is this version."""

from __future__ import annotations

import re
from pathlib import Path

import posterity


def test_the_citation_names_this_version():
    text = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (\S+)$", text, re.MULTILINE) == [posterity.__version__]
