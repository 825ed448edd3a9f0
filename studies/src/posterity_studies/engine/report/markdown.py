"""A study's page for the documentation: what `show` prints, with the figure."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.declaration import Preset, Record, Study, Table
from posterity_studies.shared.intervals import LABEL

RESULTS = "../../studies/src/posterity_studies/results"
"""From a page in docs/studies/."""


def markdown(study: Study, preset: Preset, records: Sequence[Record]) -> str:
    """Claim, command, verdict, figure, tables, notes: all from the results, so that the page cannot say anything else."""
    parts = [f"# {study.id}", f"> {study.claim}"]
    if study.paper:
        parts.append(f"The paper's {study.paper}. {study.data}.")
    elif study.data:
        parts.append(f"{study.data}.")
    minutes = sum(r.seconds for r in records) / 60
    parts.append(
        f"    posterity study run {study.id} --preset {preset}   # {len(records)} cells, {minutes:.0f} minutes on one core\n"
        f"    posterity study show {study.id}"
    )
    if study.verdict:
        verdict = study.verdict(records)
        parts.append(f"**{verdict.outcome.capitalize()}.** {verdict.why}")
    parts.append(f"![{study.claim}]({RESULTS}/{study.id}.png)")
    made = [_table(table) for table in study.tables(records)]
    parts += made
    if any("±" in table for table in made):
        parts.append(f"{LABEL}, unless a table says otherwise.")
    if study.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in study.notes))
    parts.append(f"Results: [`{study.id}.jsonl`]({RESULTS}/{study.id}.jsonl), one line per cell.")
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    head = f"| {' | '.join(c or ' ' for c in table.columns)} |"
    rule = f"| --- |{' ---: |' * (len(table.columns) - 1)}"
    rows = [f"| {' | '.join(value.replace('|', '∣') for value in row)} |" for row in table.rows]
    return "\n".join([f"**{table.title}**", "", head, rule, *rows])
