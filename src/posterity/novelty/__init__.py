"""Unknown inputs: how far an input is from what is known, as a p-value with a false-alarm rate."""

from posterity.novelty.known_inputs import of_folds, of_inputs, set_aside, unchanged
from posterity.novelty.left_out import Features, LeftOutInputs, Moments, affordable, by_folds
from posterity.novelty.moments import RelativeVariance, energy, entropy, of_outputs
from posterity.novelty.reference import BUDGET, LIMIT, Reference, alarm
from posterity.novelty.scoring import VARIANCE
from posterity.novelty.stored import ABSENT, features_of, from_known, to_known
from posterity.novelty.watching import Watch, watched_layers, watching

__all__ = [
    "ABSENT",
    "BUDGET",
    "LIMIT",
    "VARIANCE",
    "Features",
    "LeftOutInputs",
    "Moments",
    "Reference",
    "RelativeVariance",
    "Watch",
    "affordable",
    "alarm",
    "by_folds",
    "energy",
    "entropy",
    "features_of",
    "from_known",
    "of_folds",
    "of_inputs",
    "of_outputs",
    "set_aside",
    "to_known",
    "unchanged",
    "watched_layers",
    "watching",
]
