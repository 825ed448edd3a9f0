"""Every study has one shape, so that whoever knows one finds their way in all."""

from importlib import import_module
from pathlib import Path

import pytest

import posterity_studies.studies
from posterity_studies import STUDIES
from posterity_studies.engine.declaration import Study
from posterity_studies.folders import SHIPPED

FOLDERS = sorted(
    path for path in Path(posterity_studies.studies.__file__).parent.iterdir() if (path / "__init__.py").exists()
)
ALWAYS = {"__init__.py", "declaration.py", "cells.py", "reading.py", "showing.py"}
SOMETIMES = {"methods.py", "paper.py"}
"""Methods that are compared, and the paper's own recipe where it is one of them."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_study_is_declaration_cells_reading_and_showing(folder):
    files = {path.name for path in folder.iterdir() if path.name != "__pycache__"}
    assert ALWAYS <= files <= ALWAYS | SOMETIMES
    declared = import_module(f"posterity_studies.studies.{folder.name}.declaration").STUDY
    assert isinstance(declared, Study)
    assert STUDIES[declared.id] is declared
    for function, module in {"cell": "cells", "verdict": "reading", "tables": "showing", "draw": "showing"}.items():
        assert getattr(declared, function).__module__.endswith(f".{folder.name}.{module}")


def test_every_study_has_results_and_a_figure_in_the_package():
    assert len(STUDIES) == len(FOLDERS)
    for name in STUDIES:
        assert (SHIPPED / f"{name}.jsonl").stat().st_size > 0
        assert (SHIPPED / f"{name}.png").read_bytes().startswith(b"\x89PNG")
