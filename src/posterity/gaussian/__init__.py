"""A Gaussian over a network's weights: the prior, the posterior, and the file they are shared as."""

from posterity.gaussian.card import Card
from posterity.gaussian.gaussian import Gaussian
from posterity.gaussian.storage import load

__all__ = ["Card", "Gaussian", "load"]
