"""Each job of a newcomer, with Posterity and with laplace-torch: lines to write, CPU time, and what comes out.

    python -m benchmarks.walks FOLDER [JOB …]       # makes what is missing, measures, and writes results and the page's table

Three seeds: other images, sentences, rows and networks. Seeds 0 and 1 are left out: the library was changed after a look
at them. Lines are those that are neither blank, comment nor docstring; a command of a shell counts as one. CPU time is user
and system time of all processes of a job, imports included.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from posterity import __version__

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "beside-laplace-torch.md"
RESULTS = HERE.parent / "results" / "walks.jsonl"
SEEDS = (4, 5, 6)
JOBS = {
    "folder": "two folders of images → prior → 10 of each new class → predictions, certificate, pages",
    "trained": "a trained ResNet with batch norm → posterior → predictions, file",
    "bert": "a trained BERT → posterior → predictions, file",
    "table": "CSV regression → predictions with intervals",
}
TUNINGS = {"folder": ("marglik", "gridsearch"), "trained": ("marglik", "gridsearch")}
"""Where laplace-torch has held-out data to search a grid with; elsewhere it takes the marginal likelihood."""
MADE = ("prior", "few", "rest", "fit", "boat")
"""What the command line makes and does not overwrite."""
Row = dict[str, Any]


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


def run(script: Path, folder: Path, tuning: str) -> Row:
    """Run a script in a folder: its last line, and the CPU time of all its processes."""
    for name in MADE:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).unlink(missing_ok=True)
    paths = [str(HERE.parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = ""
    if script.suffix == ".sh":
        for words in commands(script):
            command = [sys.executable, "-c", "from posterity.cli import app; app()", *words[1:]]
            said = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout
    else:
        command = [sys.executable, str(script), tuning]
        said = subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found: Row = json.loads(said[said.rindex("{") :])
    wanted = ("accuracy", "nll", "rmse")
    return {"cpu_seconds": round(seconds, 1)} | {name: round(found[name], 3) for name in wanted if name in found}


def table(rows: Sequence[Row]) -> str:
    """The page's table: means over the seeds, with the least and the greatest NLL."""
    lines = [
        "| job | library | lines | CPU s | accuracy or RMSE | NLL | least to greatest |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for job, job_name in JOBS.items():
        for library, tuning in (("posterity", ""), *(("laplace-torch", t) for t in TUNINGS.get(job, ("marglik",)))):
            found = [r for r in rows if (r["job"], r["library"], r["tuning"]) == (job, library, tuning)]
            ours = library == "posterity"

            def mean(name: str, found: Sequence[Row] = found) -> float:
                return sum(float(row[name]) for row in found) / len(found)

            unit = " commands" if ours and next(HERE.glob(f"{job}_ours.*")).suffix == ".sh" else ""
            nll = [row["nll"] for row in found]
            cells = [job_name if ours else "", "**posterity**" if ours else f"{library}, {tuning}"]
            cells += [f"{found[0]['lines']}{unit}", f"{mean('cpu_seconds'):.0f}"]
            cells += [f"{mean('accuracy' if 'accuracy' in found[0] else 'rmse'):.3f}", f"{mean('nll'):.3f}"]
            cells += [f"{min(nll):.3f} to {max(nll):.3f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def show(rows: Sequence[Row]) -> None:
    """The table into its page."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split("<!-- table: walks -->\n")
    PAGE.write_text(
        f"{before}<!-- table: walks -->\n{table(rows)}\n<!-- end -->{rest.split('<!-- end -->')[1]}", "utf-8"
    )


def main(folder: Path, jobs: Sequence[str] = tuple(JOBS)) -> None:
    """Measure the jobs (or "job_ours", "job_theirs" alone) and keep one line for each library, tuning and seed."""
    kept = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []
    for seed in SEEDS:
        here = folder / str(seed)
        if not here.exists():
            made = (
                f"from benchmarks.walks.inputs import make; from pathlib import Path; make(Path({str(here)!r}), {seed})"
            )
            subprocess.run([sys.executable, "-c", made], check=True)
        for asked in jobs:
            for job, who, tuning in _parts(asked):
                library = "posterity" if who == "ours" else "laplace-torch"
                script = next(path for path in HERE.iterdir() if path.stem == f"{job}_{who}")
                versions = {library: __version__ if who == "ours" else version(library), "torch": version("torch")}
                key: Row = {"job": job, "library": library, "tuning": tuning, "seed": seed}
                row = key | {"lines": lines(script), **run(script, here, tuning), "versions": versions}
                kept = [old for old in kept if any(old[name] != key[name] for name in key)] + [row]
                print(row, flush=True)
                RESULTS.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    if {row["job"] for row in kept} == set(JOBS):
        show(kept)


def _parts(asked: str) -> list[tuple[str, str, str]]:
    """(job, who, tuning) of what was asked for."""
    job, *who = asked.split("_")
    theirs = [(job, "theirs", tuning) for tuning in TUNINGS.get(job, ("marglik",))]
    return [part for part in [(job, "ours", ""), *theirs] if not who or part[1] == who[0]]


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:] or tuple(JOBS))
