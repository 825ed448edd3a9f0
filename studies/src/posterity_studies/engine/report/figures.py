"""A study's figure as SVG inside the page, in the colours of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib

from posterity_studies.engine.declaration import Record, Study

THEMED = {"#000000": "currentColor", "#ffffff": "var(--card)", "#e6e6e6": "var(--grid)", "#cccccc": "var(--grid)"}
"""What matplotlib writes for ink, paper and grid, and what follows the reader's light or dark mode."""


def svg(study: Study, records: Sequence[Record]) -> str:
    """The same records give the same letters: names inside are salted by the study, dates left out."""
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": study.id,
        "font.family": "sans-serif",
        "savefig.transparent": True,
    }
    with matplotlib.rc_context(settings):
        file = io.StringIO()
        study.draw(records).savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    for colour, themed in THEMED.items():
        text = text.replace(f": {colour}", f": {themed}")
    # Inline, two figures share one name space: each gets its own.
    text = re.sub(r'id="([\w.-]+)"', rf'id="{study.id}-\1"', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{study.id}-", text)
    # The page decides the size; the view box keeps the shape.
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    label = f"Figure of the study {study.id}"
    return f'{head} role="img" aria-label="{label}">{rest}'
