"""The verbs that do several steps: learn a task, and split one to certify it."""

from posterity.workflow.learn import Fit, learn
from posterity.workflow.split_prior import Refined, split_prior

__all__ = ["Fit", "Refined", "learn", "split_prior"]
