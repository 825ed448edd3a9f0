"""Columns that learn one task after the other and forget none: Bayesian progressive networks."""

from posterity.progressive.bpnn import BPNN, LearnedTask
from posterity.progressive.column import Architecture, Column
from posterity.progressive.network import Network
from posterity.progressive.task import Stream, Task

__all__ = ["BPNN", "Architecture", "Column", "LearnedTask", "Network", "Stream", "Task"]
