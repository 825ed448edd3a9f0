"""Unknown inputs: how far an input is from what is known, as a p-value with a false-alarm rate."""

from posterity.novelty.left_out import Features, LeftOut, Moments, by_folds
from posterity.novelty.moments import energy, entropy, leverage, relative_variance
from posterity.novelty.reference import Reference, alarm
from posterity.novelty.stored import ABSENT, from_tensors, to_tensors

__all__ = [
    "ABSENT",
    "Features",
    "LeftOut",
    "Moments",
    "Reference",
    "alarm",
    "by_folds",
    "energy",
    "entropy",
    "from_tensors",
    "leverage",
    "relative_variance",
    "to_tensors",
]
