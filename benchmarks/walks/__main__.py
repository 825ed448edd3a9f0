"""Each job of a newcomer, with Posterity and with laplace-torch: lines to write, CPU time, and what comes out.

    python -m benchmarks.walks.inputs FOLDER        # once
    python -m benchmarks.walks FOLDER               # measures, and writes benchmarks/results/walks.jsonl

Lines are those that are neither blank, comment nor docstring; a command of a shell counts as one. CPU time is user and system
time of all processes of a job, imports included.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "walks.jsonl"
JOBS = ("folder", "trained", "bert", "table")
MADE = ("prior", "few", "rest", "fit", "boat")
"""What the command line makes and does not overwrite."""


def lines(script: Path) -> int:
    """How many lines a user writes."""
    text = script.read_text(encoding="utf-8")
    if script.suffix == ".sh":
        return len(commands(script))
    inside = ast.parse(text)
    quoted: set[int] = set()
    for node in ast.walk(inside):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            quoted |= set(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    numbered = enumerate(text.splitlines(), 1)
    return sum(1 for n, line in numbered if line.strip() and not line.strip().startswith("#") and n not in quoted)


def commands(script: Path) -> list[list[str]]:
    """The commands of a script, word by word."""
    return [line.split() for line in script.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def run(script: Path, folder: Path) -> dict[str, Any]:
    """Run a script in a folder: its last line, and the CPU time of all its processes."""
    for name in MADE:
        shutil.rmtree(folder / name, ignore_errors=True)
    paths = [str(HERE.parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = ""
    if script.suffix == ".sh":
        for words in commands(script):
            command = [sys.executable, "-c", "from posterity.cli import app; app()", *words[1:]]
            said = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout
    else:
        command = [sys.executable, str(script)]
        said = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found: dict[str, Any] = json.loads(said[said.rindex("{") :])
    wanted = ("accuracy", "nll", "rmse")
    return {"cpu_seconds": round(seconds, 1)} | {name: round(found[name], 3) for name in wanted if name in found}


def main(folder: Path, jobs: tuple[str, ...] = JOBS) -> None:
    """Measure the jobs and keep one line for each of both libraries."""
    kept = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []
    for job in jobs:
        for who, library in (("ours", "posterity"), ("theirs", "laplace-torch")):
            script = next(path for path in HERE.iterdir() if path.stem == f"{job}_{who}")
            versions = {name: version(name) for name in (library, "torch")}
            row = {"job": job, "library": library, "lines": lines(script), **run(script, folder), "versions": versions}
            kept = [old for old in kept if (old["job"], old["library"]) != (job, library)] + [row]
            print(row, flush=True)
            RESULTS.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), tuple(sys.argv[2:]) or JOBS)
