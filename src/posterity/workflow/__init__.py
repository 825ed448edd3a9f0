"""The verbs that do several steps: learn a task, and split one to certify it."""

from posterity.workflow.fit import Fit
from posterity.workflow.learn import adapt, learn
from posterity.workflow.split_prior import Refined, split_prior

__all__ = ["Fit", "Refined", "adapt", "learn", "split_prior"]
