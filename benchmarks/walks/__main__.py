"""Each job of a newcomer, with Posterity and with laplace-torch: lines to write, CPU time, and what comes out.

    python -m benchmarks.walks.inputs FOLDER        # once
    python -m benchmarks.walks FOLDER [JOB …]       # measures, and writes benchmarks/results/walks.jsonl and the page's table

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

from posterity import __version__

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "beside-laplace-torch.md"
RESULTS = HERE.parent / "results" / "walks.jsonl"
JOBS = {
    "folder": "two folders of images → prior → 10 of each new class → predictions, certificate, pages",
    "trained": "a trained ResNet with batch norm → posterior → predictions, file",
    "bert": "a trained BERT → posterior → predictions, file",
    "table": "CSV regression → predictions with intervals",
}
LACKS = {
    "folder": "a posterior of the last layer, its default; no prior, score for unknown inputs, certificate or page",
    "trained": "a posterior of the last layer, its default",
    "bert": "a posterior of the last layer, its default: norms and embeddings have no curvature there",
    "table": "",
}
"""What the other library's script leaves out of a job."""
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
        said = subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found: dict[str, Any] = json.loads(said[said.rindex("{") :])
    wanted = ("accuracy", "nll", "rmse")
    return {"cpu_seconds": round(seconds, 1)} | {name: round(found[name], 3) for name in wanted if name in found}


def table(rows: list[dict[str, Any]]) -> str:
    """The page's table."""
    found = {(row["job"], row["library"]): row for row in rows}
    lines = ["| job | library | lines | CPU s | accuracy or RMSE | NLL | left out |", "|---|---|--:|--:|--:|--:|---|"]
    for job, told in JOBS.items():
        for library in ("posterity", "laplace-torch"):
            row = found[job, library]
            ours = library == "posterity"
            first = f"{row['accuracy']:.3f}" if "accuracy" in row else f"{row['rmse']:.3f}"
            unit = " commands" if ours and next(HERE.glob(f"{job}_ours.*")).suffix == ".sh" else ""
            cells = [told if ours else "", f"**{library}**" if ours else library, f"{row['lines']}{unit}"]
            cells += [f"{row['cpu_seconds']:.0f}", first, f"{row['nll']:.3f}", "" if ours else LACKS[job]]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def show(rows: list[dict[str, Any]]) -> None:
    """The table into its page."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split("<!-- table: walks -->\n")
    PAGE.write_text(
        f"{before}<!-- table: walks -->\n{table(rows)}\n<!-- end -->{rest.split('<!-- end -->')[1]}", "utf-8"
    )


def main(folder: Path, jobs: tuple[str, ...] = tuple(JOBS)) -> None:
    """Measure the jobs (or "job_ours", "job_theirs" alone) and keep one line for each of both libraries."""
    kept = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []
    for asked in jobs:
        job = asked.split("_")[0]
        for who, library in (("ours", "posterity"), ("theirs", "laplace-torch")):
            if asked not in (job, f"{job}_{who}"):
                continue
            script = next(path for path in HERE.iterdir() if path.stem == f"{job}_{who}")
            versions = {"posterity": __version__} if who == "ours" else {library: version(library)}
            versions["torch"] = version("torch")
            row = {"job": job, "library": library, "lines": lines(script), **run(script, folder), "versions": versions}
            kept = [old for old in kept if (old["job"], old["library"]) != (job, library)] + [row]
            print(row, flush=True)
            RESULTS.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    if len(kept) == 2 * len(JOBS):
        show(kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), tuple(sys.argv[2:]) or tuple(JOBS))
