"""`posterity study`: list, run, show, report, pages."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

import posterity_studies as studies
from posterity.files import write_whole
from posterity_studies import Preset, Record, Study, Table, claims
from posterity_studies.cli.progress import watching
from posterity_studies.engine.report.markdown import is_generated
from posterity_studies.errors import NoResults
from posterity_studies.folders import RUNS, SHIPPED, cache
from posterity_studies.shared import datasets

app = typer.Typer(no_args_is_help=True, help="Reproduce what the paper claims, and see where we differ.")

Name = Annotated[str, typer.Argument(help="The study's name; `posterity study list` lists them.")]
Shown = Annotated[
    Path, typer.Option("--results", help="Folder of results files; without it, those in the package.", file_okay=False)
]
Written = Annotated[Path, typer.Option("--results", help="Folder to keep results in.", file_okay=False)]


@app.command("list")
def list_studies() -> None:
    """All studies, what they claim and how many cells each preset has."""
    table = RichTable("study", "claim", *(f"{preset} cells" for preset in Preset), box=None, header_style="bold")
    for study in studies.STUDIES.values():
        table.add_row(study.id, study.claim, *(str(len(study.grid[preset])) for preset in Preset))
    Console().print(table)


@app.command()
def run(
    name: Name,
    preset: Annotated[Preset, typer.Option(help="How much of the study to run.")] = Preset.cpu,
    workers: Annotated[int, typer.Option(min=1, help="Processes to compute with, one thread each.")] = 1,
    cluster: Annotated[
        str | None, typer.Option(help="A Dask scheduler's address: its workers compute, results are kept here.")
    ] = None,
    results: Written = RUNS,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only cells with this argument, as NAME=VALUE: stream=washington. Repeatable."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing unless something goes wrong.")] = False,
) -> None:
    """Compute the cells that are missing, draw the figure, print our figures beside the paper's."""
    console = Console(quiet=quiet)
    study = _narrowed(studies.find(name), preset, only or [])
    try:
        with watching(console, name, quiet) as watch:
            records = studies.run(study, preset, results, workers, watch, cluster)
    except KeyboardInterrupt:
        book = studies.ledger(study, results)
        cells = study.cells(preset)
        console.print(
            f"\nStopped: {len(book.of(cells))} of {len(cells)} cells are kept in {book.path}. "
            "The same command goes on from there."
        )
        raise typer.Exit(130) from None
    figure = studies.save_figure(study, records, results)
    _show(console, study, preset, records)
    console.print(f"Results: {studies.ledger(study, results).path}   Figure: {figure}", soft_wrap=True)


def _narrowed(study: Study, preset: Preset, only: Sequence[str]) -> Study:
    """The study with those cells of a preset alone that have the arguments said."""
    pairs = [text.partition("=")[::2] for text in only]
    kept = [cell for cell in study.grid[preset] if all(str(cell.get(key)) == value for key, value in pairs)]
    if not kept:
        known = {key: sorted({str(cell.get(key)) for cell in study.grid[preset]}) for key, _ in pairs}
        raise typer.BadParameter(
            f"no cell of preset {preset} has {' and '.join(only)}: there are {known}", param_hint="--only"
        )
    return replace(study, grid={**study.grid, preset: kept})


@app.command()
def show(
    name: Name,
    results: Shown = SHIPPED,
    markdown: Annotated[bool, typer.Option("--markdown", help="As a page for docs/studies/.")] = False,
) -> None:
    """Print the results there are, without computing any."""
    study = studies.find(name)
    preset, records = studies.latest(study, results)
    if markdown:
        typer.echo(studies.markdown(study, preset, records), nl=False)
        return
    _show(Console(), study, preset, records)


@app.command("report")
def write_report(
    results: Shown = SHIPPED,
    out: Annotated[
        Path | None,
        typer.Option(help="The page to write; without it, report.html in the cache folder.", dir_okay=False),
    ] = None,
) -> None:
    """Write one HTML page with every study: claim, verdict, our figures beside the paper's. Needs no data set."""
    path = out or cache() / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, studies.report(studies.STUDIES, results))
    Console().print(f"Report: {path}", soft_wrap=True)


@app.command()
def pages(
    docs: Annotated[Path, typer.Argument(help="The folder of the documentation.", file_okay=False)] = Path("docs"),
    results: Shown = SHIPPED,
) -> None:
    """Write the pages that are made from results alone again: each study's page, and the table of the paper's claims."""
    for study in studies.STUDIES.values():
        page = docs / "studies" / f"{study.id}.md"
        if page.exists() and not is_generated(page.read_text(encoding="utf-8"), study):
            continue  # written by hand
        with contextlib.suppress(NoResults):
            write_whole(page, studies.markdown(study, *studies.latest(study, results)))
    paper = docs / "paper.md"
    write_whole(paper, claims.page(paper.read_text(encoding="utf-8"), results))
    Console().print(f"Pages: {docs / 'studies'}, {paper}", soft_wrap=True)


@app.command()
def data(
    name: Annotated[
        str | None, typer.Argument(help="A data set to fetch into the data root; all are listed without.")
    ] = None,
) -> None:
    """The data sets that studies read: where each comes from; given one, fetch and verify it (sha256)."""
    if name:
        for path in datasets.download(name):
            Console().print(f"{path}: verified", soft_wrap=True)
        return
    table = RichTable("data set", "from", "fetched by us", box=None, header_style="bold")
    for known, entry in datasets.CATALOGUE.items():
        table.add_row(known, entry.home, f"{len(entry.sources)} files" if entry.sources else "no")
    Console().print(table)


def _show(console: Console, study: Study, preset: Preset, records: Sequence[Record]) -> None:
    total = len(study.grid[preset])
    console.print(f"[bold]{study.id}[/bold]: {study.claim}")
    console.print(f"Preset {preset}, {len(records)} of {total} cells.\n", highlight=False)
    for table in study.tables(records):
        print_table(console, table)
    if study.verdict:
        verdict = study.verdict(records)
        console.print(f"[bold]{verdict.outcome}[/bold]: {verdict.why}\n", highlight=False)
    for note in study.notes:
        console.print(f"• {note}", highlight=False)


def print_table(console: Console, table: Table) -> None:
    """A study's table in the terminal."""
    rich = RichTable(
        title=table.title, title_justify="left", title_style="bold", header_style="dim", box=box.SIMPLE_HEAD
    )
    for number, column in enumerate(table.columns):
        rich.add_column(column, justify="left" if number == 0 else "right")
    for row in table.rows:
        rich.add_row(*row)
    console.print(rich)
