"""Run the notebooks and keep what they print and draw: `python docs/notebooks/execute.py [NAME …]`, after changing one.

What is committed is what a run gave. A seal over the code says so, and a test holds it: code that changed without a run fails it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

HERE = Path(__file__).parent


def seal(notebook: Any) -> str:
    """Of the code of all cells."""
    code = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def execute(path: Path, timeout: int = 1200) -> Any:
    """The notebook with fresh outputs, run in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory() as folder:
        options = {"kernel_name": "python3", "timeout": timeout, "resources": {"metadata": {"path": folder}}}
        # Whatever draws elsewhere: here pictures go into the notebook.
        drawn = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
        env = (
            os.environ | drawn | {"PYTHONWARNINGS": "ignore:IProgress not found"}
        )  # of tqdm, where ipywidgets is missing
        nbclient.NotebookClient(notebook, record_timing=False, **options).execute(env=env)
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            # Pictures say the same for people who see them; the text beside one is a memory address.
            if "image/png" in output.get("data", {}):
                output.data.pop("text/plain", None)
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
        "posterity": {"code": seal(notebook)},
    }
    return notebook


def main(names: list[str]) -> None:
    """Run and write those that are named, or all."""
    for path in sorted(HERE.glob("*.ipynb")):
        if not names or path.stem in names:
            print(path.name, flush=True)
            nbformat.write(execute(path), path)


if __name__ == "__main__":
    main(sys.argv[1:])
