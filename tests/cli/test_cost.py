"""An estimate before a run is as near to the run as it says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from commands import images

from posterity.workflow.cost import FACTOR_MEMORY, FACTOR_TIME

# In a process of its own: the peak of memory is one number for a process. getrusage would begin with the peak of the process
# that started it, which may have run large tests before.
RUN = """
import json, re, sys, time
from pathlib import Path
from typer.testing import CliRunner
from posterity.cli import app

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def call(*more):
    result = CliRunner().invoke(app, [*sys.argv[1:], *more])
    assert result.exit_code == 0, result.output
    return result.stdout

told = json.loads(call("--dry-run", "--json"))
before, began = peak(), time.process_time()
call("--quiet")
print(json.dumps({"told": told, "memory": peak() - before, "seconds": time.process_time() - began}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is told elsewhere otherwise")
@pytest.mark.parametrize(("each", "epochs"), [(15, 40), (400, 5)], ids=["few, exact", "many"])
def test_memory_and_time_are_within_the_stated_factors(tmp_path, each, epochs):
    pytest.importorskip("PIL", reason="folders of images need Pillow")
    images(tmp_path / "data", [str(i) for i in range(6)], each, size=28)
    command = ["learn", str(tmp_path / "data"), "--out", str(tmp_path / "fit"), "--epochs", str(epochs)]
    done = subprocess.run([sys.executable, "-c", RUN, *command], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    memory = found["memory"] / found["told"]["memory_bytes"]
    seconds = found["seconds"] / found["told"]["seconds"]
    assert 1 / FACTOR_MEMORY < memory < FACTOR_MEMORY
    assert 1 / FACTOR_TIME < seconds < FACTOR_TIME
