"""`posterity demo`: a watch meets a new wearer."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import posterity_studies as studies
from posterity.files import write_whole
from posterity_studies import Preset, Record
from posterity_studies.cli.progress import watching
from posterity_studies.cli.study import print_table
from posterity_studies.demo import (
    KEY,
    findings,
    five_lines,
    headline,
    page,
    part,
    prior_of,
    sentences,
    study,
    table,
    typical,
)
from posterity_studies.folders import SHIPPED
from posterity_studies.shared.watch import recordings

app = typer.Typer(pretty_exceptions_show_locals=False)

OUT = Path("results") / "demo"


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the page, the prior and the results.", file_okay=False)
    ] = OUT,
    preset: Annotated[
        Preset,
        typer.Option(
            help="How much of it to run: smoke takes seconds, paper computes the ensemble and every unknown exercise too."
        ),
    ] = Preset.cpu,
    workers: Annotated[int, typer.Option(min=1, help="Processes to compute with, one thread each.")] = min(
        2, os.cpu_count() or 1
    ),
) -> None:
    """A recogniser learned from nine people meets a tenth: all ten wearers, about three minutes on two cores."""
    console = Console()
    recordings()  # without the data set there is nothing to do: say so before anything starts
    console.print("Ten times: learn a prior from nine wearers, adapt it to the tenth, compare.", highlight=False)
    try:
        with watching(console, "wearers", quiet=False) as watch:
            records = studies.run(study(out), preset, out, workers, watch)
        # Who is to be looked at from near is known only now.
        declared = study(out, near=typical(records))
        records = studies.run(declared, preset, out)
    except KeyboardInterrupt:
        console.print(f"\nStopped: finished wearers are kept in {out}. The same command goes on from there.")
        raise typer.Exit(130) from None
    records = _with_committed(records, preset, out)
    console.print(f"\n[bold]{headline(records)}[/bold]\n", highlight=False)
    print_table(console, table(records))
    console.print(f"{KEY} “unknown” is the AUROC for the exercise that no one was taught.", style="dim")
    for sentence in [*findings(records), *sentences(records)]:
        console.print(f"• {sentence}", highlight=False)
    (shown,) = part(records, "portrait")
    prior = out / "prior.safetensors"
    prior_of(out, shown.arguments).save(prior)
    lines = five_lines(prior, shown)
    where = out / "index.html"
    write_whole(where, page(records, lines, shlex.join(["posterity", *sys.argv[1:]])))
    studies.save_figure(declared, records, out)
    console.print("\nThe prior is saved. Five lines use it again:\n", highlight=False)
    console.print(lines, style="cyan", highlight=False, soft_wrap=True)
    console.print(f"\nPage: {where}", soft_wrap=True, highlight=False)


def _with_committed(records: list[Record], preset: Preset, out: Path) -> list[Record]:
    """The ensemble and the other unknown exercises take far longer than all the rest: their committed results stand beside it."""
    if preset is not Preset.cpu:
        return records
    have = {record.key for record in records}
    cells = [c for c in study(out).cells(Preset.paper) if c.key not in have]
    return [*records, *studies.Ledger(SHIPPED / "demo.jsonl").of(cells)]
