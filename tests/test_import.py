"""`import posterity` loads what fitting needs, and leaves the rest until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules of a fresh process after `import posterity`, without those that torch had loaded before."""
    code = "import sys, torch; before = set(sys.modules); import posterity; print(*(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("name", ["torchmetrics", "matplotlib", "rich", "typer", "sklearn", "scipy", "pandas"])
def test_what_is_used_later_is_loaded_later(loaded, name):
    assert not [module for module in loaded if module.split(".")[0] == name]


def test_the_command_line_is_not_loaded(loaded):
    assert "posterity.workflow.learn" in loaded
    assert not [module for module in loaded if module.startswith("posterity.cli")]
