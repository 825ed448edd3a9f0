"""Columns that learn one task after the other and forget none: progressive networks, plain and Bayesian."""

from posterity.progressive.bpnn import BPNN, Learned
from posterity.progressive.column import Architecture, Column
from posterity.progressive.learner import Learner
from posterity.progressive.metrics import Continual, Judgement, follow, judge
from posterity.progressive.network import Network
from posterity.progressive.pnn import PNN
from posterity.progressive.task import Stream, Task

__all__ = [
    "BPNN",
    "PNN",
    "Architecture",
    "Column",
    "Continual",
    "Judgement",
    "Learned",
    "Learner",
    "Network",
    "Stream",
    "Task",
    "follow",
    "judge",
]
