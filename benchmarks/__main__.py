"""`python -m benchmarks`: measure, keep the results, show them, and bring the documentation up to date."""

import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import (
    algebra,
    certificates,
    curvature,
    floor,
    large,
    large_columns,
    latency,
    memory,
    predictive,
    progressive,
    report,
    serving,
)
from benchmarks.measure import Case, Result, keep_freed_memory, read, write

PARTS = {
    "algebra": lambda quick: algebra.cases(quick=quick),
    "certificates": lambda quick: certificates.cases(quick=quick),
    "memory": lambda quick: memory.cases(quick=quick),
    "latency": lambda quick: latency.cases(quick=quick),
    "large": lambda quick: [*large.cases(quick=quick), *large_columns.cases(quick=quick)],
    "predictive": lambda quick: predictive.cases(quick=quick),
    "progressive": lambda quick: progressive.cases(quick=quick),
    "serving": lambda quick: serving.cases(quick=quick),
    "curvature": lambda quick: [*curvature.cases(quick=quick), *floor.cases(quick=quick)],
}
DOCUMENT = Path("docs/benchmarks.md")


def main(
    part: Annotated[
        str,
        typer.Argument(
            help="all, one of the parts (algebra, certificates, …), or report: tables of the last results, nothing measured."
        ),
    ] = "all",
    quick: Annotated[bool, typer.Option(help="Small sizes, one run each: does everything work?")] = False,
    only: Annotated[str, typer.Option(help="Only what has this in its name, such as 'resnet18' or 'kfoc'.")] = "",
) -> None:
    """Measure speed and memory: one thread, CPU time, each beside its reference in the same run.

    Results go to benchmarks/results/ and from there into docs/benchmarks.md. A quick run writes to runs/bench/ and leaves
    both alone. Run it from the root of the repository.
    """
    if part not in ("all", "report", *PARTS):
        raise typer.BadParameter(f"{part!r} is none of all, {', '.join(PARTS)}, report")
    console = Console()
    if not console.is_terminal:
        console.width = 140  # a log has no edge to fold at
    folder = Path("runs/bench" if quick else "benchmarks/results")
    chosen = {
        name: [case for case in cases(quick) if only in case.name]
        for name, cases in PARTS.items()
        if part in ("all", name)
    }
    if part != "report" and not any(chosen.values()):
        raise typer.BadParameter(f"nothing to measure has {only!r} in its name")
    torch.set_num_threads(1)
    keep_freed_memory()
    # torch's profiler announces itself on the terminal otherwise.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    for name, cases in chosen.items():
        if cases:
            _measure(cases, _path(folder, name), console, keep_others=bool(only))
    results = {name: read(_path(folder, name)) for name in PARTS}
    for table in report.tables(results).values():
        console.print(table.rich())
    if not quick:
        report.render(DOCUMENT, results)


def _path(folder: Path, part: str) -> Path:
    return folder / f"{part}.jsonl"


def _measure(cases: list[Case], path: Path, console: Console, *, keep_others: bool) -> None:
    found: list[Result] = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(task, description=case.name)
            found += case.measure()
            # After every case: hours of a machine's time are not to hang on the last one.
            write(found, path, keep_others=keep_others)
            progress.advance(task)
            if not console.is_terminal:
                console.print(f"{case.name}: done", highlight=False)


if __name__ == "__main__":
    typer.run(main)
