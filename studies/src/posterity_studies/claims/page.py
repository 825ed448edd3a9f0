"""The table of `docs/paper.md`, between two marks: all else on the page is written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posterity_studies.claims.figures import ABSENT
from posterity_studies.claims.rows import ROWS, Found, Row
from posterity_studies.engine.registry import STUDIES
from posterity_studies.engine.runner import latest
from posterity_studies.errors import NoResults

BEGIN, END = "<!-- rows: posterity study pages -->", "<!-- end of rows -->"
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


def page(written: str, folder: Path) -> str:
    """The page with its table made again from the results of a folder."""
    before, _, rest = written.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(records_in(folder))}\n\n{END}{after}"
