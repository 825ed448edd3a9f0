"""Studies: what the paper claims, tested by cells of work that can be stopped and taken up again."""

from posterity_studies.engine.declaration import (
    Arguments,
    Cell,
    Outcome,
    Preset,
    Record,
    Study,
    Table,
    Values,
    Verdict,
    grid,
)
from posterity_studies.engine.ledger import Ledger
from posterity_studies.engine.registry import STUDIES, find
from posterity_studies.engine.report import markdown, report
from posterity_studies.engine.runner import latest, ledger, run, save_figure

__all__ = [
    "STUDIES",
    "Arguments",
    "Cell",
    "Ledger",
    "Outcome",
    "Preset",
    "Record",
    "Study",
    "Table",
    "Values",
    "Verdict",
    "find",
    "grid",
    "latest",
    "ledger",
    "markdown",
    "report",
    "run",
    "save_figure",
]
