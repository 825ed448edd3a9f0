"""Columns that learn one task after the other and forget none: progressive networks, plain and Bayesian."""

from posterity.progressive.bpnn import BPNN, Learned
from posterity.progressive.column import Architecture, Column
from posterity.progressive.joint import Joint
from posterity.progressive.learner import Learner
from posterity.progressive.metrics import Continual, Judgement, follow, judge
from posterity.progressive.network import Network
from posterity.progressive.one_network import EWC, FineTuning, OneNetwork, OnlineLaplace
from posterity.progressive.pnn import PNN
from posterity.progressive.streams import permuted, split_by_class
from posterity.progressive.task import Stream, Task

__all__ = [
    "BPNN",
    "EWC",
    "PNN",
    "Architecture",
    "Column",
    "Continual",
    "FineTuning",
    "Joint",
    "Judgement",
    "Learned",
    "Learner",
    "Network",
    "OneNetwork",
    "OnlineLaplace",
    "Stream",
    "Task",
    "follow",
    "judge",
    "permuted",
    "split_by_class",
]
