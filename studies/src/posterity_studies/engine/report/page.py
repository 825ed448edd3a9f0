"""The report: read from results files alone, so that it renders where no data set is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from posterity.pages import document
from posterity.version import __version__
from posterity_studies.engine.declaration import Outcome, Preset, Record, Study, Table, Verdict
from posterity_studies.engine.report.figures import svg
from posterity_studies.engine.report.style import STYLE
from posterity_studies.engine.runner import latest
from posterity_studies.errors import NoResults
from posterity_studies.shared.intervals import LABEL

LONG = 16
"""A table of more rows is folded."""
CLASSES = {
    Outcome.reproduced: "reproduced",
    Outcome.partly: "partly",
    Outcome.not_reproduced: "not",
    Outcome.undecided: "none",
    Outcome.ours: "beyond",
    Outcome.unsupported: "not",
}
Found = tuple[Preset, Sequence[Record]]


def report(studies: Mapping[str, Study], folder: Path) -> str:
    """The whole page. A study without results says how to get them."""
    found = {study.id: _found(study, folder) for study in studies.values()}
    verdicts = {study.id: _verdict(study, found[study.id]) for study in studies.values()}
    parts = [
        "<h1>What the paper claims, and what we find</h1>",
        "<p class=dim>“Learning Expressive Priors for Generalization and Uncertainty Estimation in Neural Networks” "
        f"(ICML 2023), tested by Posterity {escape(__version__)}. Every figure comes from a results file and one command. "
        f"{escape(LABEL)}, unless a table says otherwise.</p>",
        "<nav aria-label=Studies>",
        *(_card(study, verdicts[study.id]) for study in studies.values()),
        "</nav>",
        *(_section(study, found[study.id], verdicts[study.id]) for study in studies.values()),
    ]
    return document("Posterity: the studies", parts, STYLE)


def _found(study: Study, folder: Path) -> Found | None:
    try:
        return latest(study, folder)
    except NoResults:
        return None


def _verdict(study: Study, found: Found | None) -> Verdict | None:
    return study.verdict(found[1]) if study.verdict and found else None


def _badge(verdict: Verdict | None) -> str:
    if verdict is None:
        return "<span class='badge none'>no verdict yet</span>"
    return f"<span class='badge {CLASSES[verdict.outcome]}'>{escape(verdict.outcome)}</span>"


def _card(study: Study, verdict: Verdict | None) -> str:
    paper = escape(study.paper) or "not in the paper"
    return f"<a href='#{study.id}'><b>{escape(study.id)}</b><span class='dim small'>{paper}</span><br>{_badge(verdict)}</a>"


def _section(study: Study, found: Found | None, verdict: Verdict | None) -> str:
    parts = [
        f"<section id='{study.id}'><h2>{escape(study.id)} {_badge(verdict)}</h2>",
        f"<p class=claim>{escape(study.claim)}</p>",
    ]
    if found is None:
        return "".join(
            [*parts, f"<p class=dim>No results yet: <code>posterity study run {study.id}</code></p></section>"]
        )
    preset, records = found
    if verdict:
        parts.append(f"<div class='verdict {CLASSES[verdict.outcome]}'><p>{escape(verdict.why)}</p></div>")
    parts.append(f"<figure tabindex=0>{svg(study, records)}</figure>")
    parts += map(_table, study.tables(records))
    if study.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in study.notes)
        parts.append(f"<h3>Notes</h3><ul class=small>{items}</ul>")
    return "".join([*parts, _facts(study, preset, records), "</section>"])


def _facts(study: Study, preset: Preset, records: Sequence[Record]) -> str:
    seeds = {r.arguments["seed"] for r in records if "seed" in r.arguments}
    total = len(study.grid[preset])
    facts = {
        "paper": escape(study.paper) or "not in the paper",
        "data": escape(study.data),
        "seeds": str(len(seeds)) if seeds else "",
        "cells": f"{len(records):,} of {total:,} (preset {preset}), {_time(sum(r.seconds for r in records))} on one core",
        "command": f"<code>posterity study run {study.id} --preset {preset}</code>",
    }
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{fact}</dd>' for name, fact in facts.items() if fact)}</dl>"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"


def _table(table: Table) -> str:
    head = "".join(f"<th scope=col>{escape(c)}</th>" for c in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in row)}</tr>" for row in table.rows)
    body = f"<div class=scroll tabindex=0><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    if len(table.rows) > LONG:
        return f"<details><summary>{escape(table.title)} ({len(table.rows)} rows)</summary>{body}</details>"
    return f"<h3>{escape(table.title)}</h3>{body}"
