"""Few labels on frozen features: heads with an exact mode, averaged over strengths and temperatures by what was left out."""

from posterity.heads.asking import ask
from posterity.heads.classes import ClassHead
from posterity.heads.fitting import ClassFit, classify
from posterity.heads.numbers import NumberFit, NumberHead, regress
from posterity.heads.recipe import HeadCandidate, HeadRecipe
from posterity.heads.storing import from_tensors, to_tensors
from posterity.heads.words import Words, words
from posterity.heads.worth import Worth, worth

__all__ = [
    "ClassFit",
    "ClassHead",
    "HeadCandidate",
    "HeadRecipe",
    "NumberFit",
    "NumberHead",
    "Words",
    "Worth",
    "ask",
    "classify",
    "from_tensors",
    "regress",
    "to_tensors",
    "words",
    "worth",
]
