"""A study's figure as SVG inside the page, in the colours of the page."""

from __future__ import annotations

from collections.abc import Sequence

from posterity import pages
from posterity_studies.engine.declaration import Record, Study

# matplotlib writes its own ink, paper and grid.
THEMED = {"#000000": "ink", "#ffffff": "card", "#e6e6e6": "grid", "#cccccc": "grid"}


def svg(study: Study, records: Sequence[Record]) -> str:
    """The same records give the same letters: names inside are salted by the study, dates left out."""
    return pages.svg(study.draw(records), study.id, f"Figure of the study {study.id}", THEMED)
