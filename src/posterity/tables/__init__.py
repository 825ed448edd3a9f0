"""Models of a table's inputs themselves: linear, a Gaussian process with one length a column, and trees."""

from posterity.tables.linear import LinearClasses, LinearNumbers, fit_linear
from posterity.tables.model import ClassModel, NumberModel, TableFit
from posterity.tables.process import Process, ProcessClasses, ProcessRecipe, fit_process, fit_process_classes
from posterity.tables.stacking import stacked_numbers
from posterity.tables.storing import from_plain, to_plain
from posterity.tables.trees import TreeClasses, TreeNumbers, Trees, TreesRecipe, fit_trees

__all__ = [
    "ClassModel",
    "LinearClasses",
    "LinearNumbers",
    "NumberModel",
    "Process",
    "ProcessClasses",
    "ProcessRecipe",
    "TableFit",
    "TreeClasses",
    "TreeNumbers",
    "Trees",
    "TreesRecipe",
    "fit_linear",
    "fit_process",
    "fit_process_classes",
    "fit_trees",
    "from_plain",
    "stacked_numbers",
    "to_plain",
]
