"""`posterity demo`: learn a prior, use it on another task, compare, show."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import posterity_studies as studies
from posterity_studies import Preset
from posterity_studies.cli.progress import watching
from posterity_studies.cli.study import print_table
from posterity_studies.demo import KEY, on_temperature, page, recipe, verdict
from posterity_studies.demo import demo as declare
from posterity_studies.engine.processes import one_thread
from posterity_studies.folders import RUNS
from posterity_studies.shared.sources import write_prior

app = typer.Typer(pretty_exceptions_show_locals=False)


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the page, the prior and the results.", file_okay=False)
    ] = RUNS / "demo",
    preset: Annotated[Preset, typer.Option(help="How much of it to run; smoke takes seconds.")] = Preset.cpu,
    workers: Annotated[int, typer.Option(min=1, help="Processes to compute with, one thread each.")] = min(
        2, os.cpu_count() or 1
    ),
) -> None:
    """MNIST's posterior as a prior for scikit-learn's digits, against tuned rivals: about two minutes on two cores."""
    console = Console()
    source = recipe(preset)
    console.print(f"The prior is learned once, from {10 * source.examples:,} MNIST images.", highlight=False)
    with one_thread():  # the same prior, to the bit, on every run
        prior = write_prior(source, out, progress=True)
    study = declare(prior)
    try:
        with watching(console, "demo", quiet=False) as watch:
            records = studies.run(study, preset, out, workers, watch)
    except KeyboardInterrupt:
        console.print(f"\nStopped: finished cells are kept in {out}. The same command goes on from there.")
        raise typer.Exit(130) from None
    for table in study.tables(records):
        print_table(console, table)
    console.print(
        f"First line: the learned prior. Others: their difference from it, paired by seed. {KEY}\n", style="dim"
    )
    curve = [r for r in records if r.arguments["experiment"] == "temperature"]
    for sentence in [*verdict(records), on_temperature(curve)]:
        console.print(f"• {sentence}", highlight=False)
    where = out / "index.html"
    command = shlex.join(["posterity", *sys.argv[1:]])
    where.write_text(page(records, command), encoding="utf-8")
    console.print(
        f"\nPage: {where}   Prior: {prior} (`posterity prior inspect` shows it)", soft_wrap=True, highlight=False
    )
