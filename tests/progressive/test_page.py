"""The example of the documentation runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "progressive.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1].replace('"epochs": 30', '"epochs": 5'), "docs/progressive.md", "exec"), {})
    assert "task 3" in capsys.readouterr().out
    assert (tmp_path / "learner" / "learner.json").exists()
