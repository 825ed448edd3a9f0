"""The notebooks are what a run of their code gave, and their code is current."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import posterity as pt

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = ["prior-to-prior", "trained-network", "watch"]
LARGEST = 250_000
"""Bytes of a notebook with its pictures."""
NEEDS = {"watch": "seglearn", "trained-network": "sklearn", "prior-to-prior": "sklearn"}


def cells(name: str) -> list[dict[str, Any]]:
    return [c for c in json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"] if c["cell_type"] == "code"]


def code(name: str) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(name)]


def test_all_notebooks_are_tested():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_was_run_as_it_stands_and_draws_pictures(name):
    path = FOLDER / f"{name}.ipynb"
    notebook = json.loads(path.read_text("utf-8"))
    sealed = hashlib.sha256("\n\n".join(code(name)).encode()).hexdigest()
    assert notebook["metadata"]["posterity"]["code"] == sealed, "run docs/notebooks/execute.py: the code has changed"
    assert [cell["execution_count"] for cell in cells(name)] == list(range(1, len(cells(name)) + 1))
    outputs = [output for cell in cells(name) for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert path.stat().st_size < LARGEST
    assert not re.search(r"/(?:tmp|root|home|work)/", path.read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_that_a_notebook_takes_from_the_library_exists(name):
    tree = ast.parse("\n".join(code(name)))
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("pt."):
            here: Any = pt
            for part in ast.unparse(node).split("(")[0].split(".")[1:]:
                if not hasattr(here, part) and not isinstance(here, type(pt)):
                    break  # of a value, which only a run knows
                here = getattr(here, part)
                found += 1
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("posterity"):
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) for alias in node.names)
    assert found > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_beginning_to_end(name):
    for library in ("nbclient", "ipykernel", "matplotlib", NEEDS[name]):
        if not find_spec(library):
            pytest.skip(
                f"{library} is not installed (posterity-torch[notebooks]; the recordings: posterity-studies[demo])"
            )
    sys.path.insert(0, str(FOLDER))
    try:
        done = importlib.import_module("execute").execute(FOLDER / f"{name}.ipynb")
    finally:
        sys.path.remove(str(FOLDER))
    pictures = [o for c in done.cells if c.cell_type == "code" for o in c.outputs if "image/png" in o.get("data", {})]
    assert len(pictures) >= 2
