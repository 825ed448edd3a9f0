"""Studies: what the paper claims, tested by cells of work that can be stopped and taken up again."""

from posterity.studies.declaration import Arguments, Cell, Preset, Record, Study, Table, Values, grid
from posterity.studies.ledger import Ledger
from posterity.studies.registry import STUDIES, find
from posterity.studies.runner import latest, ledger, run, save_figure

__all__ = [
    "STUDIES",
    "Arguments",
    "Cell",
    "Ledger",
    "Preset",
    "Record",
    "Study",
    "Table",
    "Values",
    "find",
    "grid",
    "latest",
    "ledger",
    "run",
    "save_figure",
]
