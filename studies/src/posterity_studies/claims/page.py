"""The tables of `docs/paper.md`, between two marks: all else on the page is written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posterity_studies.claims.figures import ABSENT
from posterity_studies.claims.rows import ROWS, Found, Row
from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.engine.registry import STUDIES
from posterity_studies.engine.runner import latest, ledger
from posterity_studies.errors import NoResults

BEGIN, END = "<!-- rows: posterity study pages -->", "<!-- end of rows -->"
WORDS = {
    "strangers": "unknown pictures",
    "tested": "test examples",
    "held": "validation examples",
    "size": "pixels a side",
}
"""Of arguments whose names say little by themselves."""
EFFORT = "What was run, and what is left to the `paper` preset of each study:"
COLUMNS = ("in the paper", "claim", "published", "ours at the published setting", "ours at our setting", "verdict")


def records_in(folder: Path) -> Found:
    """All results there are, by study."""
    found = {}
    for name, study in STUDIES.items():
        try:
            found[name] = latest(study, folder)[1]
        except NoResults:
            found[name] = []
    return found


def cells_of(row: Row, found: Found) -> list[str]:
    """A row's texts. Without results it says so; what tests hold names them."""
    if row.tests:
        names = ", ".join(sorted({test.partition("::")[0] for test in row.tests}))
        return [row.place, row.claim, "–", "–", f"`{names}`", row.verdict([])]
    records = found.get(row.study, [])
    place = f"[{row.place}](studies/{row.study}.md)"
    if not records:
        return [place, row.claim, row.printed(), ABSENT, ABSENT, ABSENT]
    return [place, row.claim, row.printed(), row.there(records), row.here(records), row.verdict(records)]


def table(found: Found, rows: Sequence[Row] = ROWS) -> str:
    """All rows as Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(cells_of(row, found))} |" for row in rows]
    return "\n".join(lines)


def _numbers(cells: Sequence[Mapping[str, Any]], name: str) -> set[int]:
    return {cell[name] for cell in cells if isinstance(cell.get(name), int)}


def left(study: Study) -> str:
    """Numbers of the `paper` preset that the `cpu` preset stays below, and how many seeds it has more."""
    cpu, paper = study.grid[Preset.cpu], study.grid[Preset.paper]
    parts = []
    for name in dict.fromkeys(name for cell in paper for name in cell):
        here, there = _numbers(cpu, name), _numbers(paper, name)
        if name == "seed" and len(there) > len(here):
            parts.append(f"{len(there)} seeds instead of {len(here)}")
        elif name != "seed" and here and there and max(there) > max(here):
            parts.append(f"{WORDS.get(name, name)} {max(there)} instead of {max(here)}")
    return f"{len(paper)} cells" + "".join(f", {part}" for part in parts)


def effort(folder: Path) -> str:
    """For every study of the paper's: how many cells were computed, in how many hours, and what was not."""
    lines = ["| study | cells of the `cpu` preset | hours on one core | the `paper` preset |", "|---|---|---|---|"]
    for name, study in STUDIES.items():
        if study.paper:
            cells = study.cells(Preset.cpu)
            found = ledger(study, folder).of(cells)
            hours = sum(record.seconds for record in found) / 3600
            place = f"[{name}](studies/{name}.md)"
            lines.append(f"| {place} | {len(found)} of {len(cells)} | {hours:.1f} | {left(study)} |")
    return "\n".join(lines)


def page(written: str, folder: Path) -> str:
    """The page with its tables made again from the results of a folder."""
    before, _, rest = written.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(records_in(folder))}\n\n{EFFORT}\n\n{effort(folder)}\n\n{END}{after}"
