"""The examples run, and learn what they are about."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NEEDS = {"hugging_face_trainer": ["transformers", "accelerate"], "lightning_posterior": ["lightning"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs(name, monkeypatch):
    for library in NEEDS[name]:
        pytest.importorskip(library, reason=f"{library} is not installed (posterity-torch[examples])")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    main = runpy.run_path(str(FOLDER / f"{name}.py"))["main"]
    assert 0.8 < main() <= 1.0


def test_every_example_is_run():
    tested_by_itself = {"service"}
    assert {path.stem for path in FOLDER.glob("*.py")} == set(NEEDS) | tested_by_itself
