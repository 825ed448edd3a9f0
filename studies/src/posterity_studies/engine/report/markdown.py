"""A study's page for the documentation: what `show` prints, with the figure."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.declaration import Preset, Record, Study, Table
from posterity_studies.shared.intervals import LABEL

RESULTS = "../../studies/src/posterity_studies/results"
"""From a page in docs/studies/."""


def markdown(study: Study, preset: Preset, records: Sequence[Record]) -> str:
    """Verdict and claim, figure, tables, notes, command: all from the results, so that the page cannot say anything else."""
    verdict = study.verdict(records) if study.verdict else None
    parts = [f"# {verdict.outcome.capitalize()}: {study.claim}" if verdict else f"# {study.claim}"]
    if verdict:
        parts.append(verdict.why)
    parts.append(f"![{study.claim}]({RESULTS}/{study.id}.png)")
    data = study.data[:1].upper() + study.data[1:]
    if study.paper:
        parts.append(f"The paper's {study.paper}. {data}.")
    elif data:
        parts.append(f"{data}.")
    seconds = sum(r.seconds for r in records)
    minutes = max(round(seconds / 60), 1)
    took = f", {minutes} minute{'s' * (minutes > 1)} on one core" if seconds else ""
    parts.append(
        f"    posterity study run {study.id} --preset {preset}   # {len(records)} cells{took}\n"
        f"    posterity study show {study.id}"
    )
    made = [_table(table) for table in study.tables(records)]
    parts += made
    if any("±" in table for table in made):
        parts.append(f"{LABEL}, unless a table says otherwise.")
    if study.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in study.notes))
    parts.append(_results(study))
    return "\n\n".join(parts) + "\n"


def is_generated(text: str, study: Study) -> bool:
    """Whether a page is one of `markdown`, and none that was written by hand."""
    return text.rstrip().endswith(_results(study))


def _results(study: Study) -> str:
    return f"Results: [`{study.id}.jsonl`]({RESULTS}/{study.id}.jsonl), one line per cell."


def _table(table: Table) -> str:
    head = f"| {' | '.join(c or ' ' for c in table.columns)} |"
    rule = f"| --- |{' ---: |' * (len(table.columns) - 1)}"
    rows = [f"| {' | '.join(value.replace('|', '∣') for value in row)} |" for row in table.rows]
    return "\n".join([f"**{table.title}**", "", head, rule, *rows])
