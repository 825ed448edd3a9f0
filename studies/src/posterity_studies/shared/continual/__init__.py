"""Continual learners that Bayesian progressive networks are compared with, and how all of them are judged."""

from posterity_studies.shared.continual.joint import JointNetwork
from posterity_studies.shared.continual.learner import Learner
from posterity_studies.shared.continual.metrics import Continual, Judgement, follow, judge
from posterity_studies.shared.continual.one_network import EWC, FineTuning, OneNetwork, OnlineLaplace
from posterity_studies.shared.continual.pnn import PNN

__all__ = [
    "EWC",
    "PNN",
    "Continual",
    "FineTuning",
    "JointNetwork",
    "Judgement",
    "Learner",
    "OneNetwork",
    "OnlineLaplace",
    "follow",
    "judge",
]
